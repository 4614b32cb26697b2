"""Evaluates a trial of a run with reproducible noise.

By default, the noise depends only on the seed of the run and the number of the trial. With common random numbers, it
depends only on the seed of the run and the simulator seed of the trial.
"""

import numpy as np

from conbo.experiments.run_file import SeedHabit
from conbo.problems.problem import Problem
from conbo.trials import Outcomes, Trial, outcomes_of

_NOISE = 2  # number of the random stream of noise, different from those of the optimizer
_SEEDS = 3  # number of the random stream of simulators' seeds


def evaluate(problem: Problem, seed: int, trial: Trial, habit: SeedHabit = "new") -> Outcomes:
    """Evaluate one trial of a run, with noise that can be reproduced when the run is continued.

    `seed` is the seed of the run. `habit` says which random numbers the simulator uses:

    - "new": different ones for every evaluation.
    - "chosen": those given by the simulator seed that the method chose for the trial (common random numbers).
    - "one": the same ones for all evaluations of the run.
    """
    generator = np.random.default_rng([seed, trial.number, _NOISE])
    if habit == "new":
        return outcomes_of(problem.evaluate(trial.state, trial.action, generator))
    # the simulator's seed is derived from the run's seed too, so different runs never use the same one
    of_run = np.random.SeedSequence([seed, trial.seed or 0, _SEEDS])
    own = int(of_run.generate_state(1, np.uint64)[0])
    return outcomes_of(problem.evaluate(trial.state, trial.action, generator, seed=own))
