"""Decides when a run ends (by evaluations, costs, time or expected gain), and how many trials it still needs."""

from collections.abc import Collection

from conbo.optimizer import Optimizer
from conbo.study.asking import under_way
from conbo.study.plan import Ends
from conbo.study.run_summary import Stopped
from conbo.trials import SuggestedTrials


def wanted_trials(ends: Ends) -> float:
    """Number of completed trials at which the run ends; infinite if the run has no limit on evaluations."""
    return float("inf") if ends.evaluations is None else ends.evaluations


def missing_trials(ends: Ends, optimizer: Optimizer, left: Collection[int] = ()) -> float:
    """Number of trials that a run still needs, besides those under way; infinite if it has no limit on evaluations.

    It is 0 once the total cost of the trials, including the expected cost of running ones, reaches the budget. Running
    trials without a lease count neither as evaluations nor with their costs, because their rewards may never be told;
    nor do trials whose numbers are in `left`, because nobody evaluates them now.
    """
    counted = [t for t in optimizer.trials if (t.leased or t.status != "running") and t.number not in left]
    if ends.budget is not None and sum(optimizer.learner.total_cost(counted)) >= ends.budget:
        return 0
    return max(0, wanted_trials(ends) - len(under_way(optimizer, left)))


def reached_end(ends: Ends, optimizer: Optimizer, time_is_up: bool) -> Stopped | None:
    """Name of the condition that has ended a run, or None if the run goes on.

    Running trials and their costs do not count yet.
    """
    if optimizer.n_completed >= wanted_trials(ends):
        return "evaluations"
    if ends.budget is not None and optimizer.total_cost()[0] >= ends.budget:
        return "budget"
    return "max_seconds" if time_is_up else None


def too_little_gain(ends: Ends, suggested: SuggestedTrials) -> Stopped | None:
    """Name of the condition that ends the run because the suggested trials promise too little gain, or None.

    It is "stop_below" if the expected gain of the best suggested trial is less than `stop_below`, and "worth" if this
    gain times `worth` is less than the mean expected cost of a suggested trial.
    """
    gain, cost = suggested.expected_gain, suggested.expected_cost
    if gain is None:
        return None
    if ends.stop_below is not None and gain < ends.stop_below:
        return "stop_below"
    if ends.worth is not None and cost is not None and gain * ends.worth < cost / len(suggested.trials):
        return "worth"
    return None
