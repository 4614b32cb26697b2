"""Studies whose actions are limited: stored, resumed, opened, saved."""

from pathlib import Path
from typing import Any

import pytest

import conbo
from conbo.bound_states import InfeasibleStatesWarning
from conbo.cli.study_file import read_study_file
from conbo.errors import PointError, SettingError, StudyError

STATES, ACTIONS = {"s": conbo.Real(0, 1)}, {"x": conbo.Real(0, 1)}
PLAIN = conbo.GaussianProcess(members=2, input_warping="none")


def small_enough(state: dict[str, Any], action: dict[str, Any]) -> bool:
    return action["x"] ** 2 <= 0.2 + state["s"] / 2


def told(space: conbo.Space, storage: Path, trials: int = 5, **settings: Any) -> conbo.Study:
    study = conbo.Study(space, storage=storage, initial=3, method="pei", **settings)
    for _ in range(trials):
        trial = study.ask()
        assert space.is_feasible(trial.state, trial.action)
        study.tell(trial, trial.action["x"])
    return study


def test_constraints_are_stored_and_compared(tmp_path: Path) -> None:
    space = conbo.Space(STATES, ACTIONS, ["x <= 0.2 + 0.5 * s"])
    told(space, tmp_path / "study.db")
    opened = conbo.open_study(tmp_path / "study.db")
    assert opened.space == space
    assert opened.policy()({"s": 0.4})["x"] == pytest.approx(0.4, abs=1e-6)
    with pytest.raises(StudyError, match=r"space.constraints: \['x <= 0.2 \+ 0.5 \* s'\] → none"):
        conbo.Study(conbo.Space(STATES, ACTIONS), storage=tmp_path / "study.db")


@pytest.mark.filterwarnings("ignore::conbo.policies.interaction.NoInteractionWarning")
def test_a_function_is_stored_by_its_name_and_given_again(tmp_path: Path) -> None:
    space = conbo.Space(STATES, ACTIONS, feasible=small_enough)
    study = told(space, tmp_path / "study.db")
    action = study.policy()({"s": 0.4})
    assert small_enough({"s": 0.4}, action)
    assert action["x"] == pytest.approx(0.4**0.5, abs=0.01)
    with pytest.raises(StudyError, match=r"function .*small_enough: open it with Study\(Space\(..., feasible=...\)\)"):
        conbo.open_study(tmp_path / "study.db")
    again = conbo.Study(space, storage=tmp_path / "study.db", method="pei")
    assert len(again.trials) == 5
    again.policy().save(tmp_path / "policy.json")
    with pytest.raises(StudyError, match=r"`feasible` must be the function .*small_enough, but got None\.$"):
        conbo.load_policy(tmp_path / "policy.json")
    with pytest.raises(StudyError, match=r"must be the function .*small_enough, but got function .*<lambda>\.$"):
        conbo.load_policy(tmp_path / "policy.json", feasible=lambda state, action: True)
    assert conbo.load_policy(tmp_path / "policy.json", feasible=small_enough)({"s": 0.4}) == action


def test_a_state_without_an_action_is_an_error_when_it_is_asked_for(tmp_path: Path) -> None:
    space = conbo.Space(STATES, ACTIONS, ["x >= 2 * s - 0.5"])
    with pytest.warns(InfeasibleStatesWarning) as caught:
        study = told(space, tmp_path / "study.db")
    assert len(caught) == 1
    assert all(trial.state["s"] <= 0.75 for trial in study.trials)
    for question in (lambda: study.ask(state={"s": 0.9}), lambda: study.policy()({"s": 0.9})):
        with pytest.raises(PointError, match=r"\{'s': 0.9\} has none under x >= 2 \* s - 0.5"):
            question()
    assert len(study.trials) == 5


def test_infeasible_results_may_be_imported_and_are_not_recommended(tmp_path: Path) -> None:
    (tmp_path / "earlier.csv").write_text("s,x,reward\n" + "\n".join(f"0.{i},0.9,9" for i in range(1, 6)))
    study = conbo.Study(conbo.Space(STATES, ACTIONS, ["x <= 0.5"]), method="knn")
    study.import_csv(tmp_path / "earlier.csv")
    assert study.policy()({"s": 0.3})["x"] <= 0.5


def test_the_best_observed_action_is_feasible() -> None:
    actions = {"a": conbo.Real(0, 10), "b": conbo.Real(0, 10)}
    space = conbo.Space({"c": conbo.Categorical(["x", "y"])}, actions, constraints=["a + b <= 8"])
    study = conbo.Study(space, method="uniform")
    study.add_trial({"c": "x"}, {"a": 9, "b": 9}, 18.0)
    study.run(lambda state, action: action["a"] + action["b"], 10, progress=False)
    best = study.best_observed()
    assert all(row["reward"] <= 8 + 1e-9 for row in best)
    value = study.summary().best_observed_value
    assert value == pytest.approx(sum(row["reward"] for row in best) / 2)
    study.compare(best)  # a rule that is feasible


def test_a_study_file_has_constraints(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    parameters = '[states]\ns = {type = "real", low = 0, high = 1}\n[actions]\nx = {type = "real", low = 0, high = 1}\n'
    path.write_text('constraints = ["x <= s"]\n' + parameters)
    assert read_study_file(path).space.constraints == ("x <= s",)
    for text, reason in (('"x <= s"', "must be a list of strings"), ('["x <= y"]', "unknown parameter 'y'")):
        path.write_text(f"constraints = {text}\n{parameters}")
        with pytest.raises(SettingError, match=f"study.toml: .*{reason}"):
            read_study_file(path)


def test_the_policy_is_as_good_as_any_other_action_that_a_function_allows() -> None:
    """The best actions are at the curved edge of what is allowed, and searches that start elsewhere leave it."""

    def fits(state: dict[str, Any], action: dict[str, Any]) -> bool:
        return bool(action["width"] * action["height"] <= 40)

    def profit(state: dict[str, Any], action: dict[str, Any]) -> float:
        return float(action["width"] * action["height"] - 0.05 * (action["width"] - state["w"]) ** 2)

    sides = {"width": conbo.Real(1, 20), "height": conbo.Real(1, 20)}
    study = conbo.Study(conbo.Space({"w": conbo.Real(3, 18)}, sides, feasible=fits), method="uniform", model=PLAIN)
    study.run(profit, 25, progress=False)
    policy, states = study.policy(), [{"w": w} for w in (3.5, 5.0, 9.0, 13.0, 17.0)]
    lengths = [1 + 0.5 * i for i in range(39)]
    others = [a for w in lengths for h in lengths if fits({}, a := {"width": w, "height": h})]
    for state, chosen in zip(states, policy.predict_many(states), strict=True):
        assert fits(state, chosen.action)
        best = max(p.mean for p in policy.predict_actions([state] * len(others), others))
        assert chosen.mean > best - 0.8
