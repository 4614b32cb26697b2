"""Which earlier results can be added to a study: those with the seeds, outcomes and costs that it needs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from conbo.common_random_numbers import check_seed
from conbo.cost_rules import COST, check_told
from conbo.trials import Trial

if TYPE_CHECKING:
    from conbo.optimizer import Optimizer


def check_addable(optimizer: "Optimizer", trial: Trial) -> None:
    """Raise TrialError or RewardError if a study with this optimizer does not allow the trial's seed or outcomes."""
    check_seed(optimizer.seed_rule, trial.seed)
    if trial.status == "completed":
        optimizer.learned.check(trial.measured)
        if COST in trial.measured:  # results without a cost can be added, unlike those that are told
            check_told(optimizer.cost, trial.measured)


def are_noiseless(trials: Iterable[Trial]) -> bool | None:
    """Whether completed trials have no noise variance; None if no trial is completed."""
    return next((trial.noise is None for trial in trials if trial.status == "completed"), None)
