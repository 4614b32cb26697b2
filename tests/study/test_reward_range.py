"""Known limits of the expected reward: predictions stay inside, and the limits belong to the study."""

from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import conbo
from conbo.errors import SettingError, StudyError
from conbo.policies.policy import Policy
from conbo.reward_range import checked_range

SPACE = conbo.Space(states={"size": conbo.Real(0, 1)}, actions={"rate": conbo.Real(0, 1)})


def accuracy(state: dict[str, Any], action: dict[str, Any]) -> float:
    """At most 1, and nearly that wherever the rate is right."""
    return float(1 - 0.9 * min(1.0, 4 * (action["rate"] - state["size"]) ** 2))


def error(state: dict[str, Any], action: dict[str, Any]) -> float:
    return 1 - accuracy(state, action)


def told(objective: Any, **settings: Any) -> conbo.Study:
    study = conbo.Study(SPACE, seed=3, **settings)
    grid = np.linspace(0.05, 0.95, 5)
    for size in grid:
        for rate in grid[::2]:
            study.add_trial({"size": size}, {"rate": rate}, objective({"size": size}, {"rate": rate}))
    return study


def fixed(policy: Policy) -> Policy:
    """The same with predictions that take the fitted hyperparameters for known ones, and promise more."""
    return Policy(replace(policy.belief, average=None), policy.maximize)


def means(policy: Policy) -> list[float]:
    return [prediction.mean for prediction in policy.predict_many([{"size": size} for size in np.linspace(0, 1, 9)])]


def test_predictions_stay_inside() -> None:
    free, limited = told(accuracy), told(accuracy, reward_range=(0, 1))
    assert max(means(fixed(free.policy()))) > 1  # or this would show nothing
    assert max(means(limited.policy())) <= 1
    assert max(means(fixed(limited.policy()))) <= 1
    assert limited.policy_value() <= 1


def test_minimization_has_the_limits_in_the_same_units() -> None:
    study = told(error, reward_range=(0, None), direction="minimize")
    assert min(means(study.policy())) >= 0
    assert min(means(fixed(told(error, direction="minimize").policy()))) < 0


def test_a_saved_policy_keeps_the_limits(tmp_path: Path) -> None:
    policy = told(accuracy, reward_range=(0, 1)).policy()
    policy.save(tmp_path / "policy.json")
    assert means(conbo.load_policy(tmp_path / "policy.json")) == pytest.approx(means(policy), abs=1e-9)


@pytest.mark.parametrize("limits", [(0, 1e13), (-1e300, 1e300), (None, 1e300)])
def test_limits_may_be_far_from_the_rewards(limits: Any, tmp_path: Path) -> None:
    policy = told(accuracy, reward_range=limits).policy()
    policy.save(tmp_path / "policy.json")
    loaded = conbo.load_policy(tmp_path / "policy.json")
    assert loaded.predict({"size": 0.3}).mean == pytest.approx(policy.predict({"size": 0.3}).mean, abs=1e-9)


def test_the_limits_belong_to_the_study(tmp_path: Path) -> None:
    storage = str(tmp_path / "study.db")
    told(accuracy, storage=storage, reward_range=(0, 1))
    assert len(conbo.Study(SPACE, storage=storage, reward_range=(0.0, 1.0)).trials) == 15
    with pytest.raises(StudyError, match="reward_range"):
        conbo.Study(SPACE, storage=storage, reward_range=(0, 2))
    with pytest.raises(StudyError, match="reward_range"):
        conbo.Study(SPACE, storage=storage)
    assert max(means(conbo.open_study(storage).policy())) <= 1


def test_limits_may_be_integers_of_numpy(tmp_path: Path) -> None:
    storage = str(tmp_path / "study.db")
    told(accuracy, storage=storage, reward_range=(np.int64(0), None))
    assert len(conbo.Study(SPACE, storage=storage, reward_range=(0, None)).trials) == 15
    assert checked_range((np.int64(0), np.uint8(2))) == (0, 2)
    assert {type(limit) for limit in checked_range((np.int64(0), np.float32(2))) or ()} == {float}


def test_rewards_in_another_unit_are_noticed_once(caplog: pytest.LogCaptureFixture) -> None:
    percent = told(lambda state, action: 100 * accuracy(state, action), reward_range=(0, 1))
    percent.policy()
    (said,) = caplog.messages
    assert said.endswith(
        "outside reward_range=(0.0, 1.0): predictions stay inside it, and nothing is learned. Is the unit the same?"
    )


def test_noisy_rewards_may_be_outside(caplog: pytest.LogCaptureFixture) -> None:
    noise = np.random.default_rng(0)
    told(lambda state, action: float(noise.normal(0.98, 0.3)), reward_range=(0, 1)).policy()
    told(error, reward_range=(0, None)).policy()
    told(lambda state, action: 0.7, reward_range=(0.7, 1)).summary()  # their mean is rounded to a bit less
    assert not caplog.messages


@pytest.mark.parametrize(
    "given",
    [
        0.5,
        (0,),
        (0, 1, 2),
        (1, 0),
        (1, 1),
        (None, None),
        (-inf, inf),
        (inf, None),
        (nan, 1),
        ("0", 1),
        "01",
        (False, 1),
        (np.False_, 1),
        (np.int64(1), np.int64(0)),
    ],
)
def test_wrong_limits_are_refused(given: Any) -> None:
    with pytest.raises(SettingError, match="`reward_range` must be a low and a higher limit"):
        conbo.Study(SPACE, reward_range=given)


def test_a_model_of_ones_own_has_no_limits() -> None:
    with pytest.raises(SettingError, match="`reward_range` must go with a built-in model"):
        conbo.Study(SPACE, reward_range=(0, 1), model=lambda *data: None)
