"""Evaluations whose noise depends on the seed of the run and the number of the trial alone."""

import numpy as np

from conbo.problems.problem import Problem
from conbo.trials import Trial

_NOISE = 2  # a random stream of its own, apart from those of the optimizer


def evaluate(problem: Problem, seed: int, trial: Trial) -> float:
    """One reward; a run that is continued meets the same noise, and so do all methods at a seed."""
    return problem.evaluate(trial.state, trial.action, np.random.default_rng([seed, trial.number, _NOISE]))
