"""Learns the costs of evaluations from the trials of a study, and adds up what the trials have cost."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from conbo.bound_states import StateDistribution
from conbo.cost_model import FEWEST_TOLD, CostModel, fit_costs
from conbo.cost_rules import COST, LEARNED, Cost, known_cost
from conbo.models.snapping import spread
from conbo.quasi_random import sobol
from conbo.spaces import Space
from conbo.trials import Trial

KNOWN_POINTS = 64  # points at which the user's cost function is evaluated, to fit a model that has gradients


class CostLearner:
    """Learns the costs of evaluations, and adds up what the trials of a study have cost.

    Methods take all trials of the study, in the order of their numbers.  The model is fitted again only if there are
    new costs.
    """

    def __init__(self, space: Space, states: StateDistribution, cost: Cost) -> None:
        self._space, self._states, self._cost = space, states, cost
        # the numbers of the trials that the last model was fitted to, and that model
        self._fitted: tuple[list[int], CostModel | None] | None = None

    def model(self, trials: Iterable[Trial]) -> CostModel | None:
        """Return the model of the costs; None if evaluations have no costs, or if too few costs are known."""
        if self._cost is None:
            return None
        told = [trial for trial in trials if COST in trial.measured] if self._cost == LEARNED else []
        numbers = [trial.number for trial in told]
        if self._fitted is None or self._fitted[0] != numbers:
            self._fitted = numbers, self._fit(told)
        return self._fitted[1]

    def total(self, trials: Sequence[Trial]) -> tuple[float, float]:
        """Return the total cost of the trials that have ended, and that of the running ones.

        If costs are learned, those of running and failed trials are not known, and their expected costs are used
        instead.  A completed trial without a recorded cost then adds nothing, because it was not evaluated for this
        study: its result was added from elsewhere.
        """
        ended, running, unknown = 0.0, 0.0, list[Trial]()
        for trial in trials:
            if self._cost == LEARNED:
                ended += trial.measured.get(COST, 0.0)
                if trial.status != "completed":
                    unknown.append(trial)
            elif callable(self._cost):
                cost = known_cost(self._cost, trial.state, trial.action)
                ended, running = (ended, running + cost) if trial.status == "running" else (ended + cost, running)
        if unknown:
            for trial, cost in zip(unknown, self._expected(trials, unknown), strict=True):
                ended, running = (ended, running + cost) if trial.status == "running" else (ended + cost, running)
        return ended, running

    def _expected(self, trials: Sequence[Trial], unknown: Sequence[Trial]) -> list[float]:
        model = self.model(trials)
        if model is not None:
            costs: list[float] = model.expected(self._encoded(unknown)).tolist()
            return costs
        told = [trial.measured[COST] for trial in trials if COST in trial.measured]
        return [sum(told) / max(len(told), 1)] * len(unknown)

    def _fit(self, told: Sequence[Trial]) -> CostModel | None:
        if callable(self._cost):
            d_s, d = self._space.n_state_dims, self._space.n_state_dims + self._space.n_action_dims
            even = sobol(KNOWN_POINTS, d, seed=0)
            states = self._states.from_uniform(even[:, :d_s]) if d_s else even[:, :0]
            points = spread(self._space, torch.cat([states, even[:, d_s:]], -1))
            return fit_costs(self._space, points, self._known(points), self._known)
        if len(told) < FEWEST_TOLD:
            return None
        costs = torch.tensor([trial.measured[COST] for trial in told], dtype=torch.float64)
        return fit_costs(self._space, self._encoded(told), costs)

    def _known(self, points: Tensor) -> Tensor:
        """Return the costs (n,) of points (n, d) according to the user's cost function."""
        assert callable(self._cost)
        rows, d_s = points.cpu().numpy(), self._space.n_state_dims
        pairs = zip(self._space.decode_states(rows[:, :d_s]), self._space.decode_actions(rows[:, d_s:]), strict=True)
        return torch.tensor([known_cost(self._cost, *pair) for pair in pairs], dtype=torch.float64).to(points)

    def _encoded(self, trials: Sequence[Trial]) -> Tensor:
        """Return the points (n, d) of n trials in the unit cube."""
        states = self._space.encode_states([trial.state for trial in trials])
        actions = self._space.encode_actions([trial.action for trial in trials])
        return torch.from_numpy(np.concatenate([states, actions], axis=1))
