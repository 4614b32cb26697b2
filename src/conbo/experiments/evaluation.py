"""Evaluations whose noise depends on the seed of the run and the number of the trial, or its seed, alone."""

import numpy as np

from conbo.experiments.run_file import SeedHabit
from conbo.problems.problem import Problem
from conbo.trials import Outcomes, Trial, outcomes_of

_NOISE = 2  # a random stream of its own, apart from those of the optimizer
_SEEDS = 3  # the same for the seeds of simulators


def evaluate(problem: Problem, seed: int, trial: Trial, habit: SeedHabit = "new") -> Outcomes:
    """One evaluation; a run that is continued meets the same noise, and so do all methods at a seed."""
    generator = np.random.default_rng([seed, trial.number, _NOISE])
    if habit == "new":
        return outcomes_of(problem.evaluate(trial.state, trial.action, generator))
    of_run = np.random.SeedSequence([seed, trial.seed or 0, _SEEDS])  # runs share no seed of the simulator
    own = int(of_run.generate_state(1, np.uint64)[0])
    return outcomes_of(problem.evaluate(trial.state, trial.action, generator, seed=own))
