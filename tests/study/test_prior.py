"""An earlier study of a similar problem as prior: taken over where it is right, forgotten where it is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conbo import load_policy, open_study
from conbo.belief import Belief
from conbo.errors import RecordError, SettingError, StudyError
from conbo.gaussian_process import GaussianProcess
from conbo.models.one_study import OneStudy
from conbo.record_fields import checksum
from conbo.spaces import Categorical, Real, Space
from conbo.study import Study

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})
ONE = GaussianProcess("squared-exponential", main_effects="none", input_warping="none", members=1)


def reward(state: dict[str, Any], action: dict[str, Any]) -> float:
    return float(-((action["x"] - state["s"]) ** 2))


def ran(function: Any, n: int, **settings: Any) -> Study:
    study = Study(**{"space": SPACE, "method": "uniform", **settings})
    study.run(function, n, progress=False)
    return study


@pytest.fixture(scope="module")
def earlier() -> Study:
    """A study of the same problem with rewards that are higher by ten."""
    return ran(lambda state, action: 10 + reward(state, action), 16, seed=7)


def error(study: Study) -> float:
    """How far the policy is from the best actions."""
    states = [{"s": s} for s in (0.1, 0.3, 0.5, 0.7, 0.9)]
    return max(abs(float(action["x"]) - s["s"]) for s, action in zip(states, study.policy().many(states), strict=True))


def test_two_rewards_do_where_a_similar_study_is_known(earlier: Study) -> None:
    assert error(ran(reward, 2, prior=earlier)) < 0.1
    assert error(ran(reward, 2)) > 0.2


def test_a_misleading_study_is_forgotten() -> None:
    misleading = ran(lambda state, action: reward(state, {"x": 1 - action["x"]}), 16, seed=7)
    study = ran(reward, 16, prior=misleading, seed=3)
    assert error(study) < 0.1


def test_a_policy_or_a_loaded_policy_is_a_prior_like_its_study(earlier: Study, tmp_path: Path) -> None:
    earlier.policy().save(tmp_path / "policy.json")
    loaded = load_policy(tmp_path / "policy.json")
    policies = [ran(reward, 2, prior=prior).policy()({"s": 0.4})["x"] for prior in (earlier.policy(), loaded)]
    assert policies == pytest.approx([ran(reward, 2, prior=earlier).policy()({"s": 0.4})["x"]] * 2, abs=1e-6)


def test_there_is_a_policy_before_the_first_reward(earlier: Study) -> None:
    assert error(ran(reward, 1, prior=earlier)) < 0.1
    assert error(Study(SPACE, prior=earlier)) < 0.1


def test_told_noise_of_the_earlier_study_counts_before_the_first_reward() -> None:
    earlier = Study(SPACE, model=ONE)
    for i in range(10):
        state, action = {"s": 0.1 * i}, {"x": (0.37 * i) % 1}
        outlier = i == 4
        earlier.add_trial(state, action, reward(state, action) + 50 * outlier, noise=2500.0 if outlier else 1e-6)
    assert earlier.policy()({"s": 0.4})["x"] == pytest.approx(0.4, abs=0.01)
    found = Study(SPACE, model=ONE, prior=earlier).policy()
    assert found({"s": 0.4})["x"] == pytest.approx(0.4, abs=0.01)  # 0.48, where the outlier is, if it is believed


def test_the_snapshot_is_stored(earlier: Study, tmp_path: Path) -> None:
    first = ran(reward, 3, prior=earlier, storage=tmp_path / "a.db")
    other = ran(reward, 4, seed=1)
    for again in (
        open_study(tmp_path / "a.db"),
        Study(SPACE, method="uniform", storage=tmp_path / "a.db"),
        Study(SPACE, method="uniform", storage=tmp_path / "a.db", prior=other),  # it may have gone on since
    ):
        assert again.policy()({"s": 0.3}) == first.policy()({"s": 0.3})
    ran(reward, 1, storage=tmp_path / "b.db")
    with pytest.raises(StudyError, match="was begun with other settings"):
        Study(SPACE, method="uniform", storage=tmp_path / "b.db", prior=earlier)


def test_every_capability_is_about_this_study_alone(earlier: Study) -> None:
    """Gradients by differences, shapes without the column of the study."""
    study = ran(reward, 5, prior=earlier)
    belief: Belief = study.policy().belief
    posterior = belief.posterior
    assert isinstance(posterior, OneStudy)
    points = torch.tensor([[0.2, 0.7], [0.6, 0.4]], dtype=torch.float64)
    found, step = posterior.moments(points), 1e-6
    for column in range(2):
        moved = points.clone()
        moved[:, column] += step
        slope = (posterior.mean(moved) - posterior.mean(points)) / step
        torch.testing.assert_close(found.mean_gradient[:, column], slope, rtol=1e-3, atol=1e-4)
    assert posterior.n_state_dims == 1
    assert posterior.state_lengthscales.shape == (1,)
    residuals = posterior.leave_one_out()
    assert residuals is not None
    assert len(residuals[0]) == 5
    lines = posterior.look_ahead_lines(points, points[:, None, :1], points[:, None, None, 1:])
    assert lines.gradient(torch.ones_like(lines.slope)).shape == (2, 2)
    paths = posterior.draw_paths(3, torch.Generator().manual_seed(0))
    assert paths is not None
    assert paths(points).shape == (2, 3)
    assert paths.along(points, torch.tensor([0, 1]))[1].shape == (2, 2)


@pytest.mark.parametrize("method", ["conbo", "pei"])
def test_methods_suggest_with_a_prior(earlier: Study, method: str) -> None:
    study = Study(SPACE, method=method, prior=earlier)
    study.run(reward, 3, progress=False)
    assert len(study.trials) == 3


@pytest.mark.parametrize(("n", "noise"), [(0, None), (3, None), (3, 0.01)])
def test_a_policy_with_a_prior_is_saved_with_it(n: int, noise: float | None, tmp_path: Path) -> None:
    before = ran(lambda state, action: {"reward": 1000 + reward(state, action), "noise": noise}, 8, seed=7)
    study = Study(SPACE, method="uniform", prior=before)
    for trial in study.ask(n) if n else []:
        study.tell(trial, reward(trial.state, trial.action), noise)
    study.policy().save(tmp_path / "policy.json")
    loaded = load_policy(tmp_path / "policy.json")
    rows = [{"s": s} for s in (0.1, 0.5, 0.9)], [{"x": x} for x in (0.9, 0.5, 0.3)]
    for mine, theirs in zip(study.policy().predict_actions(*rows), loaded.predict_actions(*rows), strict=True):
        assert (theirs.mean, theirs.std) == pytest.approx((mine.mean, mine.std), rel=1e-6, abs=1e-7)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "policy.json").read_text()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rewards", [], r"`prior.rewards` must be 1 to 1000000 numbers, but are 0"),
        ("points", [[0.5]], r"`prior.points` must be a list of 8, but got"),
        ("noise", "low", r"`prior.noise` must be a list of 8 numbers"),
        ("extra", 1, r"`prior.extra` must not be there"),
    ],
)
def test_a_damaged_prior_is_named(name: str, value: Any, message: str, tmp_path: Path) -> None:
    study = Study(SPACE, method="uniform", prior=ran(reward, 8, model=ONE), model=ONE)
    study.policy().save(tmp_path / "policy.json")
    record = json.loads((tmp_path / "policy.json").read_text())
    record["prior"][name] = value
    (tmp_path / "policy.json").write_text(json.dumps(record))
    with pytest.raises(RecordError, match="`checksum` must be that of the record"):
        load_policy(tmp_path / "policy.json")
    del record["checksum"]
    (tmp_path / "policy.json").write_text(json.dumps({**record, "checksum": checksum(record)}))
    with pytest.raises(RecordError, match=message):
        load_policy(tmp_path / "policy.json")


def test_priors_that_cannot_be(earlier: Study) -> None:
    other = Space(states={"s": Real(0, 1)}, actions={"y": Real(0, 1)})
    far = Space(states={"s": Real(2, 3)}, actions={"x": Real(0, 1)})
    for settings, message in (
        ({"prior": 5}, "`prior` must be a study or a policy, but got 5"),
        ({"prior": Study(SPACE)}, "`prior` must have a completed trial"),
        ({"prior": earlier, "direction": "minimize"}, "`prior` must be a study to minimize rewards"),
        ({"prior": earlier, "space": other}, "must have the states and actions of this study, but it has s, x"),
        ({"prior": earlier, "space": far}, "must have results inside this study's space"),
        ({"prior": earlier, "model": lambda *_: None}, "`prior` must go with a built-in model"),
    ):
        with pytest.raises(SettingError, match=message):
            Study(**{"space": SPACE, **settings})  # type: ignore[arg-type]


def test_a_state_may_have_the_name_of_the_hidden_one() -> None:
    space = Space(states={"study": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})

    def by_category(state: dict[str, Any], action: dict[str, Any]) -> float:
        return float(-((action["x"] - (0.2 if state["study"] == "a" else 0.8)) ** 2))

    before = ran(by_category, 14, space=space)
    study = ran(by_category, 2, space=space, prior=before)
    assert study.policy()({"study": "a"})["x"] == pytest.approx(0.2, abs=0.1)
    assert study.policy()({"study": "b"})["x"] == pytest.approx(0.8, abs=0.1)
