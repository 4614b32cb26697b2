"""Evaluations whose noise depends only on the seed of the run and on the trial's number, or the trial's seed."""

import numpy as np

from conbo.experiments.run_file import SeedHabit
from conbo.problems.problem import Problem
from conbo.trials import Outcomes, Trial, outcomes_of

_NOISE = 2  # number of the random stream of noise, different from those of the optimizer
_SEEDS = 3  # number of the random stream of simulators' seeds


def evaluate(problem: Problem, seed: int, trial: Trial, habit: SeedHabit = "new") -> Outcomes:
    """Evaluate one trial; its noise is the same in a continued run, and the same for all methods with this seed."""
    generator = np.random.default_rng([seed, trial.number, _NOISE])
    if habit == "new":
        return outcomes_of(problem.evaluate(trial.state, trial.action, generator))
    # different runs never use the same seed of the simulator
    of_run = np.random.SeedSequence([seed, trial.seed or 0, _SEEDS])
    own = int(of_run.generate_state(1, np.uint64)[0])
    return outcomes_of(problem.evaluate(trial.state, trial.action, generator, seed=own))
