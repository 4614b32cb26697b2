"""Expected improvement (EI) with BoTorch: the state is drawn from P[s], and the action maximizes EI in this state.

One model of states and actions is refitted whenever there are new rewards: BoTorch's `SingleTaskGP` with its own
priors, or `MixedSingleTaskGP` if a parameter is categorical. The improvement is over the highest posterior mean in the
drawn state. The policy takes the action with the highest posterior mean.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from botorch.acquisition.analytic import LogExpectedImprovement, PosteriorMean
from botorch.fit import fit_gpytorch_mll
from botorch.generation.gen import gen_candidates_scipy
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.gp_regression_mixed import MixedSingleTaskGP
from botorch.optim.optimize import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from conbo.bound_states import bind
from conbo.experiments.contestants import ActionRule, TrialList
from conbo.experiments.run_file import RunSettings
from conbo.initial_design import design_points
from conbo.problems.problem import Problem
from conbo.quasi_random import sobol
from conbo.spaces import Point, Space, Value
from conbo.suggestion_seeds import design_seed
from conbo.trials import Trial

STARTS, SCREENED = 10, 256  # `num_restarts` and `raw_samples` of `optimize_acqf`
POOL = 512  # number of actions that are tried in every state before the best one is refined
EXACT_NOISE = 1e-6  # noise variance that the model is told if rewards are exact, as a share of the rewards' variance
ONE_BY_ONE = {"max_optimization_problem_aggregation_size": 1}  # option for a SciPy that BoTorch does not run in batches
_STATE, _SEARCH = 6, 7  # numbers of the random streams for drawing states and for searching actions


@dataclass(frozen=True)
class BotorchContextual:
    """Settings of an alternative to conbo: BoTorch's expected improvement at states drawn from P[s]."""

    name: str = "botorch EI at drawn states"

    def enter(self, problem: Problem, settings: RunSettings, evaluations: int) -> "ContextualContestant":
        """Create the contestant for one run; `evaluations`, the planned number of evaluations, is ignored."""
        return ContextualContestant(problem, settings)


class ContextualContestant(TrialList):
    """Suggests the initial design of conbo's methods, then actions with the highest EI in states drawn from P[s]."""

    def __init__(self, problem: Problem, settings: RunSettings) -> None:
        super().__init__()
        self._problem, self._space, self._settings = problem, problem.space, settings
        self._distribution = bind(problem.state_distribution, problem.space)
        self._fitted: tuple[int, Any] = (-1, None)

    def fit(self) -> None:
        """Fit the model to all rewards so far, once the initial design is evaluated."""
        if len(self._trials) >= self._settings.initial and self._fitted[0] != len(self._trials):
            self._fitted = len(self._trials), self._model()

    def ask(self, n: int = 1) -> list[Trial]:
        """Suggest the next n points: first those of the initial design, then points by expected improvement.

        The points of one call are chosen independently of each other. A call that begins within the initial design
        returns only points of the design, even if these are fewer than n.
        """
        first = len(self._trials)
        if first < self._settings.initial:
            return self._design()[first : first + n]
        return [self._suggested(number) for number in range(first, first + n)]

    def policies(self) -> list[ActionRule]:
        """A list of one policy, which takes the action with the highest posterior mean."""
        self.fit()
        return [MeanPolicy(self._space, self._fitted[1])]

    def _design(self) -> list[Trial]:
        """All trials of the initial design; conbo's methods have the same design if their seed is the same."""
        d_s, seed = self._space.n_state_dims, design_seed(self._settings.seed)
        rows = design_points(self._space, self._distribution, seed, 0, self._settings.initial)
        points = zip(self._space.decode_states(rows[:, :d_s]), self._space.decode_actions(rows[:, d_s:]), strict=True)
        return [Trial(number, state, action) for number, (state, action) in enumerate(points)]

    def _model(self) -> Any:
        states = self._space.encode_states([trial.state for trial in self._trials])
        actions = self._space.encode_actions([trial.action for trial in self._trials])
        points = torch.from_numpy(np.concatenate([states, actions], axis=1))
        rewards = torch.tensor([[trial.reward] for trial in self._trials], dtype=torch.float64)
        variances = EXACT_NOISE * rewards.var().expand_as(rewards) if self._problem.noise == 0 else None
        categories = (*self._space.state_categories, *self._space.action_categories)
        kinds = [column for column, n in enumerate(categories) if n]
        own = (
            MixedSingleTaskGP(points, rewards, kinds, variances) if kinds else SingleTaskGP(points, rewards, variances)
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(own.likelihood, own))
        return own

    def _suggested(self, number: int) -> Trial:
        self.fit()
        model = self._fitted[1]
        state = self._distribution.sample(1, torch.Generator().manual_seed(self._own(number, _STATE)))
        d_s, d_x = self._space.n_state_dims, self._space.n_action_dims
        bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, d_s + d_x)
        fixed = dict(enumerate(state[0].tolist()))
        with torch.random.fork_rng():
            torch.manual_seed(self._own(number, _SEARCH))
            improvement = LogExpectedImprovement(model, best_f=best_actions(model, state, d_x)[1].max())
            found, _ = optimize_acqf(
                improvement, bounds, q=1, num_restarts=STARTS, raw_samples=SCREENED, fixed_features=fixed
            )
        (named,) = self._space.decode_states(state.numpy())
        return Trial(number, named, self._space.decode_actions(found[:, d_s:].numpy())[0])

    def _own(self, number: int, stream: int) -> int:
        return int(np.random.SeedSequence([self._settings.seed, number, stream]).generate_state(1)[0])


def best_actions(model: Any, states: Tensor, d_x: int) -> tuple[Tensor, Tensor]:
    """The actions (m, d_x) with the highest posterior means in states (m, d_s), and these means (m,).

    States and actions are in the unit cube. In each state, a local search refines the best of a pool of Sobol actions.
    """
    pool = sobol(POOL, d_x, seed=0)
    with torch.no_grad():
        points = torch.cat([states[:, None].expand(-1, POOL, -1), pool.expand(len(states), -1, -1)], -1)
        means = model.posterior(points).mean[..., 0]  # (m, pool)
    start = torch.cat([states, pool[means.argmax(-1)]], -1)[:, None]
    fixed = dict(enumerate(states.T))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns if a search starts at its optimum
        found, values = gen_candidates_scipy(
            start, PosteriorMean(model), 0.0, 1.0, options=ONE_BY_ONE, fixed_features=fixed
        )
    return found[:, 0, states.shape[1] :].detach(), values.detach()


@dataclass(frozen=True)
class MeanPolicy:
    """The policy that takes the action with the highest posterior mean."""

    space: Space
    model: Any

    def many(self, states: Sequence[Point]) -> list[dict[str, Value]]:
        """The action for each state."""
        encoded = torch.from_numpy(self.space.encode_states(list(states)))
        return self.space.decode_actions(best_actions(self.model, encoded, self.space.n_action_dims)[0].numpy())
