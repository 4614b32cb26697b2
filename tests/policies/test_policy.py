"""What a user does with a policy: ask, predict, save, load, and make mistakes."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from torch import Tensor

from conbo.belief import Belief, ModelLike
from conbo.errors import PointError, RecordError, SettingError
from conbo.gaussian_process import GaussianProcess
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.policies import StatePolicy
from conbo.policies.gp_argmax import GpArgmax
from conbo.policies.nearest_neighbors import NearestNeighbors
from conbo.policies.policy import Policy, load_policy
from conbo.policies.policy_gradient import PolicyGradient
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.state_distributions import Normal
from conbo.study import Study

SPACE = Space(
    states={"age": Integer(18, 90), "ward": Categorical(["A", "B"])},
    actions={"dose": Real(0.1, 10.0, log=True), "days": Integer(1, 7)},
)
CATEGORIES = Space(states={"age": Categorical([20, 41, 77]), "ward": Categorical(["A", "B"])}, actions=SPACE.actions)
ONE_MODEL = GaussianProcess("matern52", state_kernel="product", members=1, main_effects="none", output_warping="none")
STATES = [{"age": age, "ward": ward} for age in (20, 41, 77) for ward in "AB"]


def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
    ideal = 0.5 + state["age"] / 45 + (state["ward"] == "B")
    return 100 - 10 * math.log(action["dose"] / ideal) ** 2 - (action["days"] - 3) ** 2


def learned(space: Space = SPACE, noise: float | None = None, model: ModelLike | None = None, n: int = 40) -> Policy:
    study = Study(space, method="uniform", model=model)
    for trial in study.ask(n):
        study.tell(trial, objective(trial.state, trial.action), noise)
    return study.policy()


@pytest.fixture(scope="module")
def policy() -> Policy:
    return learned()


def test_dicts_in_dicts_out(policy: Policy) -> None:
    action = policy({"age": 45, "ward": "A"})
    assert set(action) == {"dose", "days"}
    assert action["days"] == 3
    assert action["dose"] == pytest.approx(1.5, rel=0.3)
    assert type(action["days"]) is int


def test_predictions_are_in_the_user_s_units(policy: Policy) -> None:
    prediction = policy.predict({"age": 45, "ward": "A"})
    assert prediction.action == policy({"age": 45, "ward": "A"})
    assert prediction.mean == pytest.approx(100, abs=3)
    assert 0 < prediction.std < 10


def test_tables_of_states(policy: Policy) -> None:
    actions, predictions = policy.many(STATES), policy.predict_many(STATES)
    assert actions == [prediction.action for prediction in predictions]
    assert actions == [policy(state) for state in STATES]
    assert policy.many([]) == policy.predict_many([]) == []


def test_predictions_for_actions_of_one_s_own(policy: Policy) -> None:
    best = policy.predict_many(STATES)
    own = policy.predict_actions(STATES, [{"dose": 9.0, "days": 7}] * len(STATES))
    assert all(a.mean > b.mean for a, b in zip(best, own, strict=True))
    again = policy.predict_actions(STATES, [row.action for row in best])
    assert [row.mean for row in again] == pytest.approx([row.mean for row in best])


def test_ten_thousand_states() -> None:
    space = Space(states={"age": Real(18, 90)}, actions=SPACE.actions)
    study = Study(space, method="uniform")
    study.run(lambda s, x: objective({**s, "ward": "A"}, x), evaluations=30, progress=False)
    policy = study.policy()
    ages = np.linspace(18, 90, 10_000).tolist()
    doses = [action["dose"] for action in policy.many([{"age": age} for age in ages])]
    assert len(doses) == 10_000
    policy.wipe_cache()
    assert policy({"age": ages[5000]})["dose"] == pytest.approx(doses[5000], rel=0.02)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"age": 91, "ward": "A"}, "`18 <= age <= 90` must hold, but got age=91"),
        ({"age": 40.5, "ward": "A"}, "'age' must be an integer, but got 40.5"),
        ({"age": "40", "ward": "A"}, "'age' must be a number, but got '40'"),
        ({"age": 40, "ward": "C"}, "'ward' must be one of 'A', 'B', but got 'C'"),
        ({"age": 40}, "'ward' is missing"),
        ({"agee": 40, "ward": "A"}, "unknown state parameter 'agee': did you mean 'age'"),
        (None, "'age', 'ward' is missing"),
        ([40, "A"], "state must be a mapping from names to values, but got"),
    ],
)
def test_bad_states(policy: Policy, state: Any, message: str) -> None:
    for ask in (policy, policy.predict):
        with pytest.raises(PointError, match=message):
            ask(state)


def test_a_bad_action_of_one_s_own(policy: Policy) -> None:
    with pytest.raises(PointError, match="`1 <= days <= 7` must hold, but got days=8"):
        policy.predict_actions([STATES[0]], [{"dose": 1.0, "days": 8}])


@pytest.mark.parametrize(("n", "m"), [(2, 1), (1, 2), (0, 1)])
def test_actions_of_one_s_own_are_one_for_every_state(policy: Policy, n: int, m: int) -> None:
    message = rf"`states` and `actions` must have the same length, but got len\(states\)={n}, len\(actions\)={m}"
    with pytest.raises(PointError, match=message):
        policy.predict_actions([STATES[0]] * n, [{"dose": 1.0, "days": 7}] * m)
    assert policy.predict_actions([], []) == []


def test_extrapolation_takes_the_nearest_state_in_range(policy: Policy) -> None:
    for age, nearest in ((95, 90), (3, 18), (math.inf, 90)):
        inside = {"age": nearest, "ward": "B"}
        assert policy({"age": age, "ward": "B"}, extrapolate=True) == policy(inside)
        assert policy.predict({"age": age, "ward": "B"}, extrapolate=True) == policy.predict(inside)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"age": 95, "ward": "C"}, "'ward' must be one of 'A', 'B', but got 'C'"),
        ({"age": math.nan, "ward": "A"}, "must hold, but got age=nan"),
        ({"age": "95", "ward": "A"}, "'age' must be a number"),
        ({"ward": "A"}, "'age' is missing"),
        (3, "state must be a mapping"),
    ],
)
def test_what_cannot_be_extrapolated(policy: Policy, state: Any, message: str) -> None:
    with pytest.raises(PointError, match=message):
        policy(state, extrapolate=True)


# Files


@pytest.mark.parametrize(
    ("space", "noise", "model"),
    [
        (SPACE, None, GaussianProcess()),
        (SPACE, 0.5, GaussianProcess("squared-exponential")),
        (SPACE, 0.0, GaussianProcess()),
        (CATEGORIES, None, GaussianProcess()),
        (CATEGORIES, None, GaussianProcess(state_kernel="multi-task")),
        (SPACE, None, ONE_MODEL),
    ],
    ids=["learned noise", "known noise", "no noise", "trend", "multi-task", "one model"],
)
def test_a_saved_policy_is_the_same_policy(
    tmp_path: Path, space: Space, noise: float | None, model: GaussianProcess
) -> None:
    policy = learned(space, noise, model)
    policy.save(tmp_path / "policy.json")
    loaded = load_policy(str(tmp_path / "policy.json"))
    assert loaded.predict_many(STATES) == policy.predict_many(STATES)
    assert loaded._belief.posterior.record() == policy._belief.posterior.record()


def test_a_saved_policy_knows_how_noise_varies(tmp_path: Path) -> None:
    space = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1), "rate": Real(0, 1)})
    generator, study = np.random.default_rng(0), Study(space, method="uniform", model=GaussianProcess(members=1))
    for trial in study.ask(150):
        gamble = 0.01 * math.exp(4 * trial.action["rate"]) * generator.standard_normal()
        study.tell(trial, math.sin(3 * trial.action["x"]) + gamble)
    policy = study.policy()
    assert isinstance(policy._belief.posterior.noise, HeteroscedasticNoise)
    policy.save(tmp_path / "policy.json")
    loaded = load_policy(tmp_path / "policy.json")
    states = [{"k": "a"}, {"k": "b"}]
    assert loaded.predict_many(states) == policy.predict_many(states)
    points = loaded._belief.observations.points
    assert torch.equal(loaded._belief.posterior.noise_at(points), policy._belief.posterior.noise_at(points))


def test_a_saved_policy_knows_how_actions_are_bent(tmp_path: Path) -> None:
    space = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1), "c": Categorical(["a", "b"]), "y": Real(0, 1)})
    study = Study(space, method="uniform", model=GaussianProcess(members=1, main_effects="none"))
    for trial in study.ask(60):
        rise = math.tanh(20 * trial.action["x"]) * math.sin(3 * trial.state["s"])
        study.tell(trial, rise + 0.2 * trial.action["y"] + (trial.action["c"] == "b"))
    policy = study.policy()
    assert policy._belief.posterior.kernel.actions.warp is not None
    policy.save(tmp_path / "policy.json")
    states = [{"s": 0.1}, {"s": 0.7}]
    assert load_policy(tmp_path / "policy.json").predict_many(states) == policy.predict_many(states)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits on the size of files")
def test_a_policy_that_cannot_be_saved_leaves_the_old_file(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    policy.save(path)
    saved = path.read_bytes()
    program = """
import resource, signal, sys
import conbo
policy = conbo.load_policy(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
policy.save(sys.argv[1])
"""
    ended = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
    assert "File too large" in ended.stderr
    assert path.read_bytes() == saved
    assert list(tmp_path.iterdir()) == [path]


def test_a_saved_policy_keeps_its_sign(tmp_path: Path) -> None:
    study = Study(SPACE, method="uniform", direction="minimize")
    study.run(lambda s, x: -objective(s, x), evaluations=20, progress=False)
    study.policy().save(tmp_path / "policy.json")
    assert load_policy(tmp_path / "policy.json").predict(STATES[0]) == study.policy().predict(STATES[0])


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("method", ["knn", "policy-gradient", "transfer-ei"])
def test_policies_that_are_not_the_model_s_are_saved_too(
    tmp_path: Path, method: str, direction: Literal["maximize", "minimize"]
) -> None:
    # the middle of P[s], where transfer looks for its action, is far from that of a uniform P[s]
    study = Study(SPACE, state_distribution={"age": Normal(80, 2)}, method=method, direction=direction)
    sign = 1 if direction == "maximize" else -1
    study.run(lambda s, x: sign * objective(s, x), evaluations=12, progress=False)
    policy = study.policy()
    policy.save(tmp_path / "policy.json")
    loaded = load_policy(tmp_path / "policy.json")
    assert loaded.predict_many(STATES) == policy.predict_many(STATES)
    loaded.wipe_cache()
    assert loaded.many(STATES) == policy.many(STATES)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "policy.json").read_text()


def test_settings_of_a_rule_are_saved(tmp_path: Path) -> None:
    policy = learned()
    for recipe in (GpArgmax(starts=2), NearestNeighbors(3), PolicyGradient(spread=0.1, starts=2)):
        Policy(policy.belief, recipe=recipe).save(tmp_path / "policy.json")
        assert load_policy(tmp_path / "policy.json").recipe == recipe
    assert policy.recipe is None
    policy.save(tmp_path / "policy.json")
    assert load_policy(tmp_path / "policy.json").recipe is None


def as_of_conbo_0_1(path: Path) -> None:
    """Turn a file into what conbo 0.1 wrote: one model, no version and no checksum."""
    record = json.loads(path.read_text())
    (member,) = record.pop("members")
    del record["conbo"], record["checksum"], record["predictive"], member["weight"]
    path.write_text(json.dumps(record | member | {"format": "conbo-policy-1"}))


def without_average(policy: Policy) -> Policy:
    """The same policy, with predictions as they were before hyperparameters were averaged over."""
    return Policy(replace(policy.belief, average=None), policy.maximize, policy.recipe)


def test_a_file_from_before_there_were_checksums(tmp_path: Path) -> None:
    policy = learned(model=ONE_MODEL)
    policy.save(tmp_path / "policy.json")
    as_of_conbo_0_1(tmp_path / "policy.json")
    with pytest.warns(UserWarning, match=r"this policy was saved by conbo 0\.1, without a checksum: save it again"):
        loaded = load_policy(tmp_path / "policy.json")
    assert loaded.predict_many(STATES) == without_average(policy).predict_many(STATES)


def test_a_file_from_before_there_were_rules(tmp_path: Path) -> None:
    policy = learned(model=ONE_MODEL)
    policy.save(tmp_path / "policy.json")
    as_of_conbo_0_1(tmp_path / "policy.json")
    record = json.loads((tmp_path / "policy.json").read_text())
    del record["policy"]
    (tmp_path / "policy.json").write_text(json.dumps(record))
    with pytest.warns(UserWarning, match="without a checksum"):
        loaded = load_policy(tmp_path / "policy.json")
    assert loaded.predict_many(STATES) == without_average(policy).predict_many(STATES)


def test_rules_that_cannot_be_saved(policy: Policy, tmp_path: Path) -> None:
    class Own:
        def __repr__(self) -> str:
            return "Own()"

        def build(self, belief: Belief, generator: torch.Generator) -> StatePolicy:
            return NearestNeighbors().build(belief, generator)

    with pytest.raises(SettingError, match=r"one of model, .*, on-steps to be saved, but this is Own\(\)"):
        Policy(policy.belief, recipe=Own()).save(tmp_path / "policy.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "policy.json' is no policy that can be used: a record must be JSON"),
        (
            json.dumps({"format": "other"}),
            "must be of one of the formats conbo-policy-3, conbo-policy-2, conbo-policy-1, but got 'other'",
        ),
        (
            json.dumps({"format": "conbo-policy-9", "conbo": "0.9.0"}),
            r"but got 'conbo-policy-9', written by conbo 0\.9\.0",
        ),
        (json.dumps([1, 2]), r"a record must be an object with names, but got \[1, 2\]"),
        ('{"format": "a", "format": "b"}', "`format` must be there once, but is there twice"),
        ("[" * 100_000, "a record must be JSON: maximum recursion depth"),
    ],
    ids=["no JSON", "other", "later", "list", "twice", "deep"],
)
def test_files_that_are_no_policies(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(RecordError, match=message):
        load_policy(tmp_path / "policy.json")


# BoTorch


def botorch_model(points: Tensor, rewards: Tensor, noise: Tensor | None) -> SingleTaskGP:
    return SingleTaskGP(points, rewards, noise, outcome_transform=None)


def test_a_botorch_model(tmp_path: Path) -> None:
    space = Space(states={"age": Integer(18, 90)}, actions=SPACE.actions)
    study = Study(space, method="uniform", model=botorch_model)
    study.run(lambda s, x: objective({**s, "ward": "A"}, x), evaluations=30, progress=False)
    policy = study.policy()
    assert policy({"age": 45})["dose"] == pytest.approx(1.5, rel=0.4)
    assert policy.predict({"age": 45}).mean == pytest.approx(100, abs=3)
    with pytest.raises(SettingError, match=r"must have a built-in model to be saved.*SingleTaskGP of BoTorch"):
        policy.save(tmp_path / "policy.json")
    assert not (tmp_path / "policy.json").exists()
