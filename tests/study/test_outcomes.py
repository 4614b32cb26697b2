"""What is measured beside the reward: told, run, stored and written to files."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conbo import GaussianProcess, Optimizer, open_study
from conbo.errors import RewardError, StudyError, TrialError
from conbo.models.exact import ExactPosterior
from conbo.observations import Observations
from conbo.spaces import Integer, Real, Space
from conbo.study import Study

# the names of the parameters are also those of outcomes
SPACE = Space(states={"seed": Real(0, 1)}, actions={"wait": Real(0, 1), "cost": Integer(1, 5)})


def measuring(state: dict[str, Any], action: dict[str, Any]) -> dict[str, float]:
    return {"reward": action["wait"], "noise": 0.25, "wait": 4 * state["seed"], "cost": 1 / 3}


def new_study(**settings: Any) -> Study:
    return Study(**{"space": SPACE, "method": "uniform", **settings})


def test_told_outcomes_are_kept_to_the_last_digit(tmp_path: Path) -> None:
    study = new_study(storage=tmp_path / "study.db")
    measured = {"wait": 1 / 3, "größte": -5e-324, "low": -0.0, "high": 1.7976931348623157e308}
    first, second = study.ask(2)
    study.tell(first, 1.0, outcomes=measured)
    study.tell(second, 2.0)
    study.tell(first, 1.0, outcomes=dict(reversed(measured.items())))  # to repeat it changes nothing
    kept = open_study(tmp_path / "study.db").trials
    assert [trial.measured for trial in kept] == [measured, {}]
    assert kept == study.trials
    with pytest.raises(
        TrialError, match=r"trial 1 was told measured=\{\} before and cannot be told \{'wait': 4.2\} now"
    ):
        study.tell(second, 2.0, outcomes={"wait": 4.2})
    with pytest.raises(RewardError, match="a value of the outcome 'wait' must be one finite number, but got inf"):
        study.tell(study.ask(), 1.0, outcomes={"wait": float("inf")})
    assert [trial.status for trial in study.trials] == ["completed", "completed", "running"]


@pytest.mark.parametrize("outcomes", [[1.0], "wait", 3])
def test_outcomes_must_be_a_mapping(outcomes: Any) -> None:
    study = Study(SPACE)
    trial = study.ask()
    with pytest.raises(RewardError, match="outcomes must be a mapping from names to numbers, but got"):
        study.tell(trial, 1.0, outcomes=outcomes)


def test_an_optimizer_takes_them_and_suggests_the_same() -> None:
    plain, measured = (Optimizer(SPACE, method="expected-improvement", initial=2) for _ in range(2))
    for optimizer, outcomes in ((plain, None), (measured, {"wait": 4.2})):
        for trial in optimizer.ask(3):
            optimizer.tell(trial, trial.action["wait"], outcomes=outcomes)
    assert [trial.measured for trial in measured.trials] == [{"wait": 4.2}] * 3
    assert measured.ask() == plain.ask()


@pytest.mark.parametrize("where", ["here", "processes", "executor"])
def test_an_objective_may_return_a_mapping(where: str) -> None:
    study = new_study()
    if where == "executor":
        with ThreadPoolExecutor(2) as executor:
            study.run(measuring, 4, executor=executor, progress=False)
    else:
        study.run(measuring, 4, workers=2 if where == "processes" else None, progress=False)
    for trial in study.trials:
        assert (trial.reward, trial.noise) == (trial.action["wait"], 0.25)
        assert trial.measured == {"wait": 4 * trial.state["seed"], "cost": 1 / 3}


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"wait": 1.0}, "an objective must return a number or a mapping with 'reward', but got {'wait': 1.0}."),
        ({"reward": 1.0, "wait": "long"}, "a value of the outcome 'wait' must be one finite number, but got 'long'."),
        ({"reward": 1.0, 3: 1.0}, "the name of an outcome must be a non-empty string, but got 3."),
        ({"reward": 1.0, "noise": -1}, "`noise >= 0` must hold for the variance of a reward, but got noise=-1."),
    ],
    ids=lambda value: "" if isinstance(value, str) else repr(value)[:24],
)
def test_a_mapping_that_is_not_valid_fails_the_trial(here: bool, result: Any, error: str) -> None:
    results = [result, {"reward": 2.0}]
    study = new_study()
    with ThreadPoolExecutor(1) as executor:
        study.run(lambda state, action: results.pop(0), 1, executor=None if here else executor, progress=False)
    assert [(trial.status, trial.error) for trial in study.trials] == [
        ("failed", f"RewardError: {error}"),
        ("completed", ""),
    ]


# Tables


def test_observations_have_a_column_for_every_name() -> None:
    study = new_study()
    first, second, third = study.ask(3)
    study.tell(first, 1.0, outcomes={"wait": 4.2})
    study.tell(second, 2.0, outcomes={"cost": 3})
    study.fail(third)
    assert {tuple(row) for row in study.observations} == {
        ("number", "seed", "wait", "cost", "reward", "status", "outcome:wait", "outcome:cost")
    }
    assert [row["outcome:wait"] for row in study.observations] == [4.2, None, None]
    assert [row["wait"] for row in study.observations] == [trial.action["wait"] for trial in study.trials]


def test_what_is_written_can_be_imported(tmp_path: Path) -> None:
    study, path = new_study(), tmp_path / "trials.csv"
    measured = [{"wait": 0.1, "=1+1": 1 / 3}, {}, {"wait": -1e-300, 'a, "b"': 3.0, "noise level": 2.0}]
    for trial, outcomes in zip(study.ask(3), measured, strict=True):
        study.tell(trial, 1.0, noise=0.1, outcomes=outcomes)
    study.fail(study.ask())
    study.to_csv(path)
    other = new_study()
    assert other.import_csv(path) == 3
    assert other.trials == study.trials[:3]
    assert [trial.measured for trial in other.trials] == measured


def test_a_parameter_that_is_named_like_the_column_of_an_outcome(tmp_path: Path) -> None:
    study, path = new_study(space=Space(actions={"outcome:wait": Real(0, 1)})), tmp_path / "trials.csv"
    study.tell(study.ask(), 1.0, outcomes={"wait": 4.2, "cost": 3})
    assert study.observations[0]["outcome:wait"] == study.trials[0].action["outcome:wait"]
    study.to_csv(path)
    assert study.import_csv(path) == 1
    assert study.trials[1].action == study.trials[0].action
    assert study.trials[1].measured == {"cost": 3.0}


def test_bad_outcomes_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("seed,wait,cost,reward,outcome:x\n0.5,1,1,1.0,long\n0.5,1,1,1.0,\n0.5,1,1,1.0,inf\n")
    with pytest.raises(StudyError) as raised:
        new_study().import_csv(path)
    assert str(raised.value).splitlines()[1:] == [
        "  line 2: a value of the outcome 'x' must be one finite number, but got 'long'.",
        "  line 4: a value of the outcome 'x' must be one finite number, but got inf.",
    ]
    path.write_text("seed,wait,cost,reward,outcome:x,outcome:x\n0.5,1,1,1.0,1,2\n")
    with pytest.raises(StudyError, match="must have one column for 'outcome:x', but has several"):
        new_study().import_csv(path)


def test_a_model_of_ones_own_sees_what_was_measured() -> None:
    seen: list[Observations] = []

    class Recording:
        def fit(self, space: Space, observations: Observations) -> ExactPosterior:
            seen.append(observations)
            return GaussianProcess("matern52", noise="small", input_warping="none").fit(space, observations)

    study = Study(Space(actions={"x": Real(0, 1)}), method="uniform", model=Recording())
    for trial, outcomes in zip(study.ask(3), ({"wait": 4.0}, {}, {"wait": 2.5, "cost": 1.0}), strict=True):
        study.tell(trial, float(trial.action["x"]), outcomes=outcomes)
    study.policy()
    (observations,) = seen
    assert {name: values.tolist() for name, values in observations.measured.items()} == {
        "cost": pytest.approx([math.nan, math.nan, 1.0], nan_ok=True),
        "wait": pytest.approx([4.0, math.nan, 2.5], nan_ok=True),
    }
    assert observations.first(1).measured["wait"].tolist() == [4.0]
