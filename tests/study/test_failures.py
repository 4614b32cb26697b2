"""Failures teach where evaluations fail, unless they are to be ignored or are nobody's fault."""

import random
from pathlib import Path
from typing import Any

import pytest

import conbo
from conbo.errors import StudyError
from conbo.spaces import Point

SPACE = conbo.Space({"s": conbo.Real(0, 1)}, {"x": conbo.Real(0, 1)})
FIXED = conbo.GaussianProcess("squared-exponential", main_effects="none", input_warping="none", members=1)


def evaluated(study: conbo.Study, n: int = 24, error: str = "ValueError: it diverged") -> conbo.Study:
    """More is better, but beyond 0.6 all evaluations fail."""
    for trial in study.ask(n):
        if trial.action["x"] > 0.6:
            study.fail(trial, error)
        else:
            study.tell(trial, trial.action["x"] * (1 + trial.state["s"]))
    return study


def new_study(**settings: Any) -> conbo.Study:
    return conbo.Study(**{"space": SPACE, "model": FIXED, "method": "uniform", **settings})


def test_the_policy_keeps_away_from_failures() -> None:
    prediction = evaluated(new_study()).policy().predict({"s": 0.5})
    assert 0.3 < prediction.action["x"] < 0.7
    assert prediction.probability is not None
    assert prediction.probability >= 0.95 - 1e-6


def test_the_summary_says_whether_failures_are_learned_from() -> None:
    study = evaluated(new_study())
    failed = sum(trial.status == "failed" for trial in study.trials)
    assert study.summary().failures == failed > 2
    assert f"avoids points like the {failed} where evaluations failed." in str(study.summary())
    # knn has a policy that ignores constraints
    for settings in ({"failures": "ignore"}, {"method": "knn"}):
        ignoring = evaluated(new_study(**settings))
        assert ignoring.summary().failures == 0
        assert "fail" not in str(ignoring.summary())


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"failures": "ignore"}, "ValueError: it diverged"),
        ({}, ""),  # canceled
        ({}, "10 workers were lost with this trial"),
        ({}, "TerminatedWorkerError: a worker was killed"),
    ],
)
def test_other_failures_change_nothing(settings: dict[str, str], error: str) -> None:
    prediction = evaluated(new_study(**settings), error=error).policy().predict({"s": 0.5})
    assert prediction.probability is None
    assert prediction.action["x"] == pytest.approx(1.0, abs=0.05)


def test_one_failure_may_be_an_accident() -> None:
    study = new_study(space=conbo.Space(actions={"x": conbo.Real(0, 1)}))
    first, second, third = study.ask(3)
    study.tell(first, 1.0)
    study.fail(second, "ValueError: no")
    assert study.policy().predict().probability is None
    study.fail(third, "TimeoutError: no result after 5 s")  # two of three say nothing of where evaluations fail
    assert study.policy().predict().probability is None


@pytest.mark.parametrize("seed", range(4))
def test_failures_anywhere_are_taken_for_accidents(seed: int) -> None:
    study, accidents = new_study(seed=seed), random.Random(seed)
    for trial in study.ask(30):
        if accidents.random() < 0.3:
            study.fail(trial, "OSError: the license server did not answer")
        else:
            study.tell(trial, trial.action["x"] * (1 + trial.state["s"]))
    prediction = study.policy().predict({"s": 0.5})
    assert prediction.probability is None
    assert prediction.action["x"] == pytest.approx(1.0, abs=0.05)


def test_a_mended_mistake_does_no_harm() -> None:
    """The objective failed everywhere; after it was mended, the same study goes on."""
    study = new_study()
    with pytest.raises(conbo.errors.ConboError, match="failed 10 times in a row"):
        study.run(lambda state, action: action["X"], 20, progress=False)
    study.run(lambda state, action: action["x"] * (1 + state["s"]), 12, progress=False)
    prediction = study.policy().predict({"s": 0.5})
    assert prediction.probability is None
    assert prediction.action["x"] == pytest.approx(1.0, abs=0.05)


def test_suggestions_keep_away_from_failures_also_after_a_resume(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": FIXED, "method": "expected-improvement"}
    study = evaluated(conbo.Study(SPACE, **settings, initial=30, storage=tmp_path / "study.db"), 16)

    def suggested(trials: Any, **more: Any) -> Any:
        optimizer = conbo.Optimizer(SPACE, **settings, initial=3, **more)
        optimizer.restore(trials)
        return optimizer.ask()[0]

    learning, ignoring = suggested(study.trials), suggested(study.trials, failures="ignore")
    points = [(trial.state, trial.action) for trial in (learning, ignoring)]
    likely, unlikely = study.policy().predict_actions(*zip(*points, strict=True))
    assert likely.probability is not None
    assert unlikely.probability is not None
    assert likely.probability > unlikely.probability
    assert suggested(conbo.open_study(tmp_path / "study.db").trials) == learning


def test_a_run_that_stops_after_a_failure_resumes_exactly(tmp_path: Path) -> None:
    """The second failure changes what is learned although no reward is new."""
    space = conbo.Space(
        states={"s": conbo.Real(0, 1), "c": conbo.Categorical(["u", "v"])},
        actions={"a": conbo.Real(0, 1), "n": conbo.Integer(1, 5)},
    )

    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        if action["n"] == 5:
            raise ValueError("too many")
        return float(-((state["s"] - action["a"]) ** 2) - abs(action["n"] - 2) * 0.1)

    def stop_after_two(study: conbo.Study, trial: conbo.Trial) -> None:
        if sum(each.status == "failed" for each in study.trials) == 2:
            study.stop()

    def points(*callbacks: list[Any]) -> list[Any]:
        storage = tmp_path / f"{len(callbacks)}.db"
        for each in callbacks:
            study = conbo.Study(space, seed=5, storage=storage)
            study.run(objective, 12, callbacks=each, progress=False)
        return [trial.point for trial in study.trials]

    assert points([stop_after_two], []) == points([])


def test_the_setting_is_stored_and_studies_without_it_ignore_failures(tmp_path: Path) -> None:
    learning, ignoring = tmp_path / "learning.db", tmp_path / "ignoring.db"
    new_study(storage=learning)
    new_study(storage=ignoring, failures="ignore")  # as conbo stored studies before it knew the setting
    assert evaluated(new_study(storage=learning)).policy().predict({"s": 0.5}).probability is not None
    assert evaluated(new_study(storage=ignoring)).policy().predict({"s": 0.5}).probability is None
    with pytest.raises(StudyError, match="failures: 'learn' → none"):
        new_study(storage=learning, failures="ignore")
    with pytest.raises(StudyError, match="failures: none → 'learn'"):
        new_study(storage=ignoring, failures="learn")


def test_ten_failures_in_a_row_still_end_a_run() -> None:
    def fails(state: dict[str, Any], action: dict[str, Any]) -> float:
        raise ValueError("never")

    with pytest.raises(conbo.errors.ConboError, match="failed 10 times in a row"):
        new_study().run(fails, 20, progress=False)


@pytest.mark.parametrize("method", ["conbo", "scot", "pmto"])
def test_a_state_in_which_all_evaluations_fail_is_left_alone(method: str) -> None:
    space = conbo.Space(states={"k": conbo.Categorical(["a", "b", "c"])}, actions={"x": conbo.Real(0, 1)})

    def objective(state: Point, action: Point) -> float:
        if state["k"] == "c":
            raise ValueError("c fails")
        return -((float(action["x"]) - (0.3 if state["k"] == "a" else 0.7)) ** 2)

    study = conbo.Study(space, method=method, seed=0)
    study.run(objective, 16, progress=False)
    assert [trial.status for trial in study.trials].count("failed") <= 4


@pytest.mark.parametrize("method", ["thompson", "mts", "mts-pathwise", "ps-bax"])
def test_methods_that_sample_leave_out_points_that_probably_fail(method: str) -> None:
    """A failure tells nothing of the reward, so the same action would look best again and again."""
    space = conbo.Space(states={"k": conbo.Categorical(["a", "b"])}, actions={"n": conbo.Integer(0, 9)})

    def objective(state: Point, action: Point) -> float:
        n = float(action["n"])
        if n > 6:
            raise ValueError("too many")
        return n if state["k"] == "a" else n / 2

    study = conbo.Study(space, method=method, model=FIXED, initial=8, seed=1)
    study.run(objective, 12, progress=False)
    assert [study.policy()({"k": k})["n"] for k in "ab"] == [6, 6]
    assert [trial.status for trial in study.trials[8:]].count("failed") <= 5


def test_points_that_probably_fail_are_not_suggested_if_nothing_is_left_to_gain() -> None:
    """No action keeps the limit, so all gains are zero. Rewards are exact, so only failures leave any uncertainty."""

    def objective(state: Point, action: Point) -> dict[str, float]:
        x = float(action["x"])
        if x < 0.5:
            raise ValueError("too small")
        return {"reward": x, "wait": 10 + x}

    study = new_study(method="conbo", initial=10, outcome_constraints={"wait": conbo.AtMost(2.5)})
    study.run(objective, 10, progress=False)
    assert study.summary().failures > 0
    assert float(study.ask().action["x"]) >= 0.45
