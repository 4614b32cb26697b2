"""Costs: known or learned, budgets, and gain per cost."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import conbo
from conbo.cost_model import fit_costs
from conbo.errors import RewardError, SettingError, StudyError
from conbo.optimizer import Optimizer
from conbo.quasi_random import sobol

SPACE = conbo.Space({"s": conbo.Real(0, 1)}, {"x": conbo.Real(0, 1)})


def reward(state: dict[str, Any], action: dict[str, Any]) -> float:
    return -((action["x"] - state["s"]) ** 2)


def known_cost(state: dict[str, Any], action: dict[str, Any]) -> float:
    return 10 ** action["x"]


def reward_and_cost(state: dict[str, Any], action: dict[str, Any]) -> dict[str, float]:
    return {"reward": reward(state, action), "cost": known_cost(state, action)}


def test_learned_costs_are_those_that_were_told() -> None:
    points = sobol(40, 2, seed=0)
    costs = 10 ** points[:, 1]
    model = fit_costs(SPACE, points, costs)
    new = sobol(20, 2, seed=1)
    torch.testing.assert_close(model.expected(new), 10 ** new[:, 1], rtol=0.02, atol=0)
    _, gradient = model.log_relative(new)
    step = torch.tensor([0.0, 1e-5], dtype=torch.float64)
    slope = (model.log_relative(new + step)[0] - model.log_relative(new - step)[0]) / 2e-5
    torch.testing.assert_close(gradient[:, 1], slope, rtol=1e-4, atol=1e-4)


def test_known_costs_turn_the_method_to_cheap_points() -> None:
    paid = {}
    for cost in (None, known_cost):
        optimizer = Optimizer(SPACE, cost=cost, seed=3, initial=6, method="pei")
        for trial in optimizer.ask(6):
            optimizer.tell(trial, reward(trial.state, trial.action))
        suggested = []
        for _ in range(6):
            (trial,) = optimizer.ask()
            suggested.append(known_cost(trial.state, trial.action))
            optimizer.tell(trial, reward(trial.state, trial.action))
        paid[cost] = sum(suggested)
    assert paid[known_cost] < 0.8 * paid[None]


def test_a_run_ends_when_its_budget_is_spent() -> None:
    study = conbo.Study(SPACE, cost=known_cost, method="uniform")
    summary = study.run(reward, budget=30, progress=False)
    costs = [known_cost(trial.state, trial.action) for trial in study.trials]
    assert summary.stopped == "budget"
    assert study.total_cost() == pytest.approx(sum(costs))
    assert sum(costs) >= 30 > sum(costs[:-1])
    assert study.run(reward, budget=30, progress=False).completed == 0  # the budget is that of the study


def test_a_trial_that_may_never_be_told_takes_nothing_from_the_budget() -> None:
    study = conbo.Study(SPACE, cost=lambda state, action: 1.0, method="uniform")
    left = study.ask()
    summary = study.run(reward, budget=5, max_seconds=10, progress=False)
    assert (summary.completed, summary.stopped) == (5, "budget")
    assert study.total_cost() == 6
    study.fail(left)  # a failed trial counts
    assert study.run(reward, budget=7, progress=False).completed == 1


def test_a_learned_cost_counts_towards_the_budget_and_is_stored(tmp_path: Path) -> None:
    study = conbo.Study(SPACE, cost="learned", method="pei", initial=4, storage=tmp_path / "study.db")
    study.run(reward_and_cost, budget=20, progress=False)
    again = conbo.open_study(tmp_path / "study.db")
    told = sum(trial.measured["cost"] for trial in again.trials)
    assert again.total_cost() == pytest.approx(told)
    assert told >= 20
    trial = again.ask()  # now it runs, and counts as it is expected
    assert again.total_cost() == pytest.approx(told + known_cost(trial.state, trial.action), rel=0.05)
    for outcome, reason in (({}, "must be told with every reward"), ({"cost": -1.0}, "`cost > 0` must hold")):
        with pytest.raises(RewardError, match=reason):
            again.tell(trial, 1.0, outcomes=outcome)
    with pytest.raises(RewardError, match="must be given once"):
        again.tell(trial, 1.0, outcomes={"cost": 1.0}, cost=2.0)
    again.tell(trial, 1.0, cost=2.5)
    assert again.trials[-1].measured == {"cost": 2.5}


def test_a_known_cost_is_stored_by_its_name(tmp_path: Path) -> None:
    conbo.Study(SPACE, cost=known_cost, storage=tmp_path / "study.db")
    with pytest.raises(StudyError, match=r"cost is a function: open it with Study\(..., cost=...\)"):
        conbo.open_study(tmp_path / "study.db")
    assert conbo.Study(SPACE, cost=known_cost, storage=tmp_path / "study.db").total_cost() == 0
    with pytest.raises(StudyError, match=r"cost: 'function .*known_cost' → none"):
        conbo.Study(SPACE, storage=tmp_path / "study.db")


def test_a_run_ends_when_the_gain_is_not_worth_its_cost() -> None:
    study = conbo.Study(SPACE, cost=known_cost, method="pei", initial=4)
    assert study.run(reward, 30, worth=1e-6, progress=False).stopped == "worth"
    assert len(study.trials) == 4


def test_a_run_ends_in_time() -> None:
    study = conbo.Study(SPACE, method="uniform")
    assert study.run(reward, 10**6, max_seconds=0.05, progress=False).stopped == "max_seconds"


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_begins_once_the_time_is_up(fails: bool) -> None:
    """Neither the rest of a batch nor a retry; a later run evaluates what is left."""
    study, most = conbo.Study(SPACE, method="uniform"), 0.3
    ends: list[float] = []

    def slow(state: dict[str, Any], action: dict[str, Any]) -> float:
        ends.append(time.monotonic() + most)
        while time.monotonic() < ends[0]:
            time.sleep(0.01)
        return float("nan") if fails else reward(state, action)

    summary = study.run(slow, 6, batch=6, retries=3, max_seconds=most, progress=False)
    assert summary.stopped == "max_seconds"
    assert (summary.failed, summary.retried) == (0, 0)
    assert len(ends) <= 1
    assert study.run(reward, 6, progress=False).stopped == "evaluations"
    assert [trial.number for trial in study.trials] == list(range(6))


def test_no_trial_begins_that_was_found_too_late() -> None:
    pauses, most = list[float](), 0.1

    def never(state: dict[str, Any], action: dict[str, Any]) -> float:
        raise AssertionError("an evaluation began")

    def feasible(state: dict[str, Any], action: dict[str, Any]) -> bool:
        if pauses:
            time.sleep(pauses.pop())
        return True

    study = conbo.Study(conbo.Space(SPACE.states, SPACE.actions, feasible=feasible), method="uniform")
    pauses.append(2 * most)  # in the first suggestion
    summary = study.run(never, 6, max_seconds=most, progress=False)
    assert (summary.stopped, summary.failed) == ("max_seconds", 0)
    assert not pauses


def test_a_run_whose_last_evaluation_ends_late_has_met_its_goal() -> None:
    study, most = conbo.Study(SPACE, method="uniform"), 1.0

    def late(state: dict[str, Any], action: dict[str, Any]) -> float:
        time.sleep(1.2 * most)
        return reward(state, action)

    study.run(reward, 1, progress=False)  # the next suggestion is fast
    with ThreadPoolExecutor(1) as executor:
        summary = study.run(late, 2, executor=executor, max_seconds=most, progress=False)
    assert (summary.completed, summary.stopped) == (1, "evaluations")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"budget": 0}, "`0 < budget < inf` must hold, but got budget=0"),
        ({"budget": float("nan")}, "`0 < budget < inf`"),
        ({"max_seconds": -1}, "`0 < max_seconds < inf`"),
        ({"worth": 1.0}, "`worth` needs a method that knows"),
        ({"budget": 5}, "`budget` needs a study with a `cost`"),
    ],
)
def test_ends_that_cannot_be(settings: dict[str, float], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        conbo.Study(SPACE, method="uniform").run(reward, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1.0, 0.0, float("nan"), "dear", None])
def test_a_cost_must_be_a_positive_number(wrong: Any) -> None:
    study = conbo.Study(SPACE, cost=lambda state, action: wrong, method="uniform")
    with pytest.raises(SettingError, match=r"`0 < cost < inf` must hold, but got .* for state"):
        study.run(reward, budget=5, progress=False)
    with pytest.raises(SettingError, match="`cost` must be a function of state and action, or 'learned'"):
        conbo.Study(SPACE, cost=3)  # type: ignore[arg-type]


def test_an_added_result_needs_no_cost_but_it_must_be_positive() -> None:
    study = conbo.Study(SPACE, cost="learned", method="uniform")
    study.add_trial({"s": 0.5}, {"x": 0.5}, 1.0)
    with pytest.raises(RewardError, match="`cost > 0` must hold, but got cost=0"):
        study.add_trial({"s": 0.5}, {"x": 0.5}, 1.0, outcomes={"cost": 0})
    with pytest.raises(StudyError, match="row 1: `cost > 0` must hold, but got cost=-1"):
        study.add_trials([{"s": 0.5, "x": 0.5, "reward": 1, "outcome:cost": -1}])
    assert len(study.trials) == 1
