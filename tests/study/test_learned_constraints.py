"""Studies with constrained outcomes: from settings to policies and files."""

import math
from pathlib import Path
from typing import Any

import pytest

import conbo
from conbo.errors import ConboError, RewardError, SettingError, StudyError
from conbo.policies.policy import Prediction

SPACE = conbo.Space({"s": conbo.Real(0, 1)}, {"x": conbo.Real(0, 1)})
LIMITS = {"wait": conbo.AtMost(0.5)}
FIXED = conbo.GaussianProcess("squared-exponential", main_effects="none", input_warping="none", members=1)


def evaluated(state: dict[str, Any], action: dict[str, Any]) -> dict[str, float]:
    """More is better, but at x = 0.25 + 0.5 s the wait is as long as it may be."""
    return {"reward": action["x"], "wait": 0.5 + action["x"] - 0.25 - 0.5 * state["s"]}


def new_study(**settings: Any) -> conbo.Study:
    return conbo.Study(SPACE, **{"outcome_constraints": LIMITS, "model": FIXED, "method": "pei", **settings})


@pytest.fixture(scope="module")
def policy() -> Any:
    study = new_study(method="uniform")
    study.run(evaluated, 24, progress=False)
    return study.policy()


def test_the_policy_keeps_what_was_learned(policy: Any) -> None:
    for s in (0.1, 0.5, 0.9):
        prediction = policy.predict({"s": s})
        assert prediction.action["x"] == pytest.approx(0.25 + 0.5 * s, abs=0.02)
        assert prediction.action["x"] <= 0.25 + 0.5 * s
        assert 0.95 - 1e-6 <= prediction.probability <= 1
    broken, kept = policy.predict_actions([{"s": 0.5}] * 2, [{"x": 0.9}, {"x": 0.1}])
    assert broken.probability < 0.01
    assert kept.probability > 0.99
    assert "probability to keep the constraints" in kept._repr_html_()
    assert Prediction({"x": 1.0}, 2.0, 0.1).probability is None


def test_a_notebook_shows_the_learned_limits() -> None:
    html = new_study(outcome_constraints={"wait": conbo.AtMost(0.5), "yield": conbo.AtLeast(3)})._repr_html_()
    assert "<td>wait &lt;= 0.5</td>" in html
    assert "<td>yield &gt;= 3</td>" in html


def test_every_state_gets_an_action_that_keeps_constraints_whatever_was_asked_before() -> None:
    study = conbo.Study(SPACE, method="uniform", model=FIXED, outcome_constraints={"wait": conbo.AtMost(5.2)})
    study.run(
        lambda s, x: {"reward": -((x["x"] - 0.7) ** 2), "wait": 5 * s["s"] + 2 * x["x"]},
        evaluations=12,
        progress=False,
    )
    policy = study.policy()
    for s in range(26):  # in most of these states, the best action without constraints keeps them
        prediction = policy.predict({"s": s / 25})
        assert prediction.probability >= 0.95 - 1e-6
        assert prediction.action["x"] == pytest.approx(min(0.7, (5.2 - 0.2 * s) / 2), abs=0.01)


def test_an_action_does_not_depend_on_what_was_asked_before() -> None:
    study = conbo.Study(
        SPACE, method="uniform", model=FIXED, outcome_constraints={"wait": conbo.AtMost(0.3)}, confidence=0.3
    )
    study.run(
        lambda s, x: {"reward": math.sin(14 * x["x"] + 4 * s["s"]) + 0.3 * x["x"], "wait": x["x"] - s["s"]},
        evaluations=14,
        progress=False,
    )
    policy = study.policy()
    after_others = [policy({"s": k / 10})["x"] for k in range(10, -1, -1)][::-1]
    for k, action in enumerate(after_others):
        policy.wipe_cache()
        assert action == pytest.approx(policy({"s": k / 10})["x"], abs=1e-3)


def test_where_all_actions_break_a_constraint_the_one_that_most_probably_keeps_it_is_taken() -> None:
    study = conbo.Study(SPACE, method="uniform", model=FIXED, outcome_constraints={"wait": conbo.AtMost(4.9)})
    study.run(lambda s, x: {"reward": x["x"], "wait": 5 + x["x"]}, evaluations=16, progress=False)
    for s in (0.3, 0.5, 0.7):  # all probabilities are so small that they round to zero
        prediction = study.policy().predict({"s": s})
        assert prediction.action["x"] == pytest.approx(0, abs=1e-6)
        assert prediction.probability == 0


def test_a_saved_policy_keeps_it_too(policy: Any, tmp_path: Path) -> None:
    policy.save(tmp_path / "policy.json")
    loaded = conbo.load_policy(tmp_path / "policy.json")
    policy.wipe_cache()  # answers for other states help to find these
    for s in (0.2, 0.8):
        mine, theirs = policy.predict({"s": s}), loaded.predict({"s": s})
        assert theirs.action["x"] == pytest.approx(mine.action["x"], abs=1e-6)
        assert theirs.probability == pytest.approx(mine.probability, abs=0.05)


@pytest.mark.parametrize("method", ["conbo", "expected-improvement"])
def test_suggestions_are_the_same_after_a_resume(method: str, tmp_path: Path) -> None:
    whole, storage = new_study(method=method, initial=5, seed=3), tmp_path / "study.db"
    whole.run(evaluated, 7, progress=False)
    for n in (6, 7):
        conbo.Study(
            SPACE, outcome_constraints=LIMITS, model=FIXED, method=method, initial=5, seed=3, storage=storage
        ).run(evaluated, n, progress=False)
    assert conbo.open_study(storage).trials == whole.trials
    assert conbo.open_study(storage).outcome_constraints == LIMITS


def test_settings_are_stored_and_compared(tmp_path: Path) -> None:
    storage = tmp_path / "study.db"
    new_study(storage=storage, confidence=0.8)
    assert new_study(storage=storage, confidence=0.8).outcome_constraints == LIMITS
    with pytest.raises(StudyError, match=r"outcome_constraints.wait.bound: 0.5 → 0.6"):
        new_study(storage=storage, confidence=0.8, outcome_constraints={"wait": conbo.AtMost(0.6)})
    with pytest.raises(StudyError, match=r"confidence: 0.8 → none"):
        new_study(storage=storage)
    with pytest.raises(StudyError, match="outcome_constraints"):
        conbo.Study(SPACE, model=FIXED, method="pei", confidence=0.8, storage=storage)


def test_nothing_is_told_without_its_outcome() -> None:
    study = new_study()
    trial = study.ask()
    for outcomes, reason in (
        (None, "the outcome 'wait' must be told with every reward"),
        ({"weight": 1.0}, "but got 'weight'"),
        ({"wait": math.nan}, "a value of the outcome 'wait' must be one finite number"),
    ):
        with pytest.raises(RewardError, match=reason):
            study.tell(trial, 1.0, outcomes=outcomes)
    assert study.trials[0].status == "running"
    study.tell(trial, 1.0, outcomes={"wait": 0.1})
    with pytest.raises(RewardError, match="the outcome 'wait' must be told"):
        study.add_trial({"s": 0.5}, {"x": 0.5}, 1.0)
    with pytest.raises(StudyError, match="row 1: the outcome 'wait' must be told"):
        study.add_trials([{"s": 0.5, "x": 0.5, "reward": 1.0}])
    assert study.add_trials([{"s": 0.5, "x": 0.5, "reward": 1.0, "outcome:wait": 0.3}]) == 1
    assert len(study.trials) == 2


def test_an_objective_that_forgets_an_outcome_fails() -> None:
    study = new_study(method="uniform")
    summary = study.run(lambda s, x: evaluated(s, x) if x["x"] > 0.3 else x["x"], 4, progress=False)
    failed = [trial for trial in study.trials if trial.status == "failed"]
    assert summary.failed == len(failed) > 0
    assert all("the outcome 'wait' must be told with every reward" in trial.error for trial in failed)


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(SettingError, match="`outcome_constraints` need a method whose policy follows the model"):
        new_study(method="knn")


def test_an_earlier_study_teaches_the_constraints_too(tmp_path: Path) -> None:
    earlier = new_study(method="uniform")
    earlier.run(evaluated, 20, progress=False)
    study = new_study(prior=earlier, method="uniform", storage=tmp_path / "study.db")
    for n in (0, 3):  # how alike both studies are is not known before the first result
        if n:
            study.run(evaluated, n, progress=False)
        policy = conbo.open_study(tmp_path / "study.db").policy()
        policy.save(tmp_path / "policy.json")
        mine, theirs = (p.predict_actions([{"s": 0.4}], [{"x": 0.4}])[0] for p in (policy, load(tmp_path)))
        assert (theirs.mean, theirs.probability) == pytest.approx((mine.mean, mine.probability), abs=1e-4)
    for s in (0.2, 0.8):
        assert policy({"s": s})["x"] == pytest.approx(0.25 + 0.5 * s, abs=0.08)


def load(folder: Path) -> Any:
    return conbo.load_policy(folder / "policy.json")


def test_a_saved_policy_as_a_prior_knows_the_outcomes(tmp_path: Path) -> None:
    earlier = new_study(method="uniform")
    earlier.run(evaluated, 12, progress=False)
    earlier.add_trial({"s": 0.5}, {"x": 0.5}, 0.5, outcomes={"wait": 0.5, "other": 2.0})  # only this trial has it
    policy = earlier.policy()
    policy.save(tmp_path / "policy.json")
    predictions = []
    for prior in (policy, load(tmp_path)):
        study = new_study(prior=prior, method="uniform")
        study.run(evaluated, 2, progress=False)
        predictions.append(study.policy().predict({"s": 0.2}))
    assert predictions[1].action["x"] == pytest.approx(predictions[0].action["x"], abs=1e-4)
    assert predictions[1].probability == pytest.approx(predictions[0].probability, abs=1e-4)
    other = load(tmp_path).belief.observations.measured["other"]
    assert (other.isfinite().sum(), other[-1]) == (1, 2.0)


def test_a_prior_that_knows_nothing_of_the_outcomes() -> None:
    earlier = conbo.Study(SPACE, method="uniform")
    earlier.run(lambda s, x: x["x"], 4, progress=False)
    study = new_study(prior=earlier)
    with pytest.raises(ConboError, match="because `prior` says nothing of the outcome 'wait', but there is none yet"):
        study.policy()
    study.add_trial({"s": 0.5}, {"x": 0.1}, 0.1, outcomes={"wait": 0.1})
    assert 0 <= study.policy().predict({"s": 0.5}).probability <= 1


def test_the_last_evaluations_improve_on_rewards_that_keep_the_constraints() -> None:
    space = conbo.Space({"k": conbo.Categorical(["a", "b"])}, {"x": conbo.Real(0, 1)})
    study = conbo.Study(space, outcome_constraints={"wait": conbo.AtMost(0.5)}, method="uniform", seed=3)
    for k in ("a", "b"):
        for x in (0.05, 0.25, 0.65, 0.95):  # the two highest rewards break the constraint
            study.add_trial({"k": k}, {"x": x}, x**2, outcomes={"wait": x})

    study.run(lambda s, x: {"reward": x["x"] ** 2, "wait": x["x"]}, 10, finish="best-observed", progress=False)

    assert all(0.16 < row["reward"] <= 0.25 for row in study.best_observed())


def test_best_observed_actions_keep_the_constraints() -> None:
    space = conbo.Space({"k": conbo.Categorical(["a", "b"])}, {"x": conbo.Real(0, 1)})
    study = conbo.Study(space, outcome_constraints=LIMITS, method="uniform")
    for x, wait in ((0.2, 0.1), (0.9, 0.7)):
        study.add_trial({"k": "a"}, {"x": x}, x, outcomes={"wait": wait})
    rows = {row["state"]["k"]: row["reward"] for row in study.best_observed()}
    assert rows == {"a": 0.2, "b": None}
