"""Enters a method or an alternative into a run: creates its contestant, which suggests points and offers policies."""

from conbo.experiments.contestants import ActionRule, Contestant, Entry
from conbo.experiments.run_file import RunSettings
from conbo.method_list import Method
from conbo.optimizer import Optimizer
from conbo.problems.problem import Problem


class Ours(Optimizer):
    """Conbo's optimizer as a contestant: it suggests points, is told their rewards, and offers one policy."""

    def policies(self) -> list[ActionRule]:
        """A list of one policy: the optimizer's."""
        return [self.policy()]


def contestant(entry: Entry, problem: Problem, settings: RunSettings, evaluations: int) -> Contestant:
    """Create the contestant for one run of a method or an alternative, with a planned number of `evaluations`."""
    if not isinstance(entry, Method):
        return entry.enter(problem, settings, evaluations)
    return Ours(
        problem.space,
        state_distribution=problem.state_distribution,
        method=entry,
        seed=settings.seed,
        initial=settings.initial,
        common_random_numbers=settings.seed_habit == "chosen",
        outcome_constraints=problem.outcome_constraints,
    )
