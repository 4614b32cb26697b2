"""The posterior of a model of relative actions: rewards depend on the state s and the action u = x - W s.

The model itself knows only points (s, u) of the unit cube (see `shear.py`).  There, the actions that are possible in a
state satisfy linear constraints, 0 <= x <= 1, and the search for the best action respects them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conbo.models.converted import Converted, ConvertedValues
from conbo.models.exact import ExactPosterior
from conbo.models.gains import GainRule
from conbo.models.mean_search import best_by_mean
from conbo.models.posterior import ActionSearch, BestActions
from conbo.models.shear import Shear
from conbo.models.transformed import TransformedPosterior
from conbo.quasi_random import sobol
from conbo.spaces import Categorical, Parameter, Real, Space

LEAST_GROWTH = 1e-6  # actions whose range grows by less than this share need no constraints


@dataclass(frozen=True)
class RelativePosterior(Converted):
    """The posterior of a model of relative actions, for points with the actions of the user.

    `whole` is the posterior for points with relative actions.
    """

    whole: ExactPosterior | TransformedPosterior
    shear: Shear

    def __str__(self) -> str:
        """Describe the fitted model, for the log."""
        return f"{self.whole}, actions relative to the state"

    def converted(self, points: Tensor) -> Tensor:
        """Return points (..., d) with relative actions."""
        return self.shear(points)

    def converted_states(self, states: Tensor) -> Tensor:
        """Return states (..., d_s) unchanged."""
        return states

    def converted_actions(self, states: Tensor, actions: Tensor) -> Tensor:
        """Return the relative actions (..., q, d_x) of q actions in each of the given states (..., d_s)."""
        return self.shear.relative(states[..., None, :], actions)

    def pulled(self, gradient: Tensor) -> Tensor:
        """Convert gradients (..., d) with respect to points with relative actions to those with respect to points."""
        return self.shear.gradient(gradient)

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Return flags (m,): which states (m, d_s) have a correlation >= `least` with any `known` state (k, d_s).

        Besides, the rewards of one action must be as similar in the two states, because the best action of the known
        state is where a search in the other state starts.
        """
        n_actions = len(self.shear.weights)
        here, there = (torch.cat([rows, rows.new_full((len(rows), n_actions), 0.5)], -1) for rows in (states, known))
        return self.whole.resemble(states, known, least) & (self.similarity(here, there).amax(-1) >= least)

    def action_search(self, space: Space, actions: Tensor) -> "RelativeSearch":
        """Return an object that searches for the best action of a state, starting from a pool of actions (p, d_x).

        Two pools of relative actions are made of it: the actions of quasi-random states, and the same numbers again.
        The first has most relative actions where many states allow them, the second also has those of few states.
        """
        states = sobol(len(actions), self.n_state_dims, seed=0).to(actions)
        pool = torch.cat([self.shear.relative(states, actions), actions])
        return RelativeSearch(self, space, actions, self.whole.action_search(relative_space(space, self.shear), pool))

    def record(self) -> dict[str, Any]:
        """Return the model and W (entry `shear`) as plain values, for a saved policy."""
        return {**self.whole.record(), "shear": self.shear.weights.tolist()}

    def page_record(self, space: Space) -> dict[str, Any] | None:
        """Return the values from which the report's web page computes the posterior; None if the page cannot do so.

        They are those of the model, with scales of actions in the user's coordinates, and W (entry `shear`).
        """
        record = self.whole.page_record(space)
        if record is None:
            return None
        scales = (torch.tensor(record["actionScales"]).to(self.shear.span) / self.shear.span).tolist()
        return {**record, "actionScales": scales, "shear": self.shear.weights.tolist()}

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> "RelativePosterior":
        """Return the posterior given these observations instead of its own, with the same hyperparameters.

        The observations are `rewards` (n,) at `points` (n, d). `noise` (n,) holds the variances of the rewards' noise
        if they are known. Simulator seeds are ignored, because models of relative actions have no effects of seeds.
        """
        return RelativePosterior(self.whole.conditioned_on(self.shear(points), rewards, noise), self.shear)


@dataclass(frozen=True)
class RelativeSearch:
    """A search for the best actions of given states, among relative actions."""

    posterior: RelativePosterior
    space: Space
    actions: Tensor  # (p, d_x), in the unit cube
    search: ActionSearch

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Search for the actions with the highest posterior mean in states (m, d_s).

        In each state, local searches begin at promising relative actions. `starts` is the largest number of these
        searches, and `steps` the largest number of steps of each.
        """
        shear = self.posterior.shear

        def ends(chunk: Tensor) -> Tensor:
            return shear.actions(chunk[:, None], self.search.best(chunk, starts, steps).basins)

        if self.space.has_integer_actions:
            return best_by_mean(self.posterior, self.space, states, ends, starts)
        found = self.search.best(states, starts, steps)
        basins = shear.actions(states[:, None], found.basins)
        return BestActions(shear.actions(states, found.actions), found.mean, basins)

    def gains(self, rule: GainRule) -> ConvertedValues:
        """Return the object that computes knowledge gradients of candidates in states.

        `rule` says how a knowledge gradient is estimated from posterior means after a new reward. The best actions
        after that reward may have integers that are not whole.
        """
        return ConvertedValues(self.posterior, self.search.gains(rule))


def relative_space(space: Space, shear: Shear) -> Space:
    """Return the space of states and relative actions: unit intervals and categories, with constraints on actions.

    In a state s of the unit cube, the relative action u stands for the action x = low + span u + W s (see `Shear`), and
    the constraints are 0 <= x <= 1.
    """
    states = {f"s{column}": _unit(one) for column, one in enumerate(space.states.values())}
    actions = {f"u{column}": _unit(one) for column, one in enumerate(space.actions.values())}
    constraints = []
    rows = zip(shear.low.tolist(), shear.span.tolist(), shear.weights.tolist(), strict=True)
    for column, (low, span, weights) in enumerate(rows):
        if span > 1 + LEAST_GROWTH:
            terms = [f"{weight!r} * s{state}" for state, weight in enumerate(weights) if weight]
            action = " + ".join([f"{span!r} * u{column}", *terms])
            constraints += [f"{action} >= {-low!r}", f"{action} <= {1 - low!r}"]
    return Space(states, actions, constraints)


def _unit(parameter: Parameter) -> Parameter:
    """Return a parameter with the same columns of the unit cube, without a scale and without integers."""
    return parameter if isinstance(parameter, Categorical) else Real(0, 1)
