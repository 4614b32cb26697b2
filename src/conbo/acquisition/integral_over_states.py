"""The acquisition function ConBO: the value of a candidate in each state, integrated over the distribution P[s].

    ConBO(s, x) = ∫ KG_c(s'; (s, x)) P[s'] ds'

The value KG_c is a knowledge gradient, or another `StateValue`: how useful an observation at the candidate (s, x) is in
the state s'.  If there are few states, the integral is a sum over all of them, otherwise over some that
`quadrature_states.py` chooses.

If the model is an average of several models, its members, the integral is the weighted sum of the members' integrals.
Unless all states are used, the number of states of a member is proportional to its weight, but at least a quarter of
what a single model would get.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from conbo.acquisition.quadrature_states import (
    SCREENING_STATES,
    StateRule,
    StateRuleRecipe,
    StratifiedStates,
    WeightedStates,
)
from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.models.gains import AveragesValues, KnowsSeeds, StateValue
from conbo.models.mixture_gains import MixtureGains, weighted
from conbo.models.posterior import Averages
from conbo.recording import Recordable, recorded

DEFAULT_STATES = StratifiedStates()
LEAST_SHARE = 0.25  # least fraction of the usual number of states that a member gets, however small its weight is
LOOK_AGAIN = 2  # final values use this many times as many states as a local search


class StateValueRecipe(Protocol):
    """A recipe for a function that says what an evaluation at a candidate is worth in each state.

    An example is the knowledge gradient: how much the evaluation is expected to raise the state's best posterior mean.
    """

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """Build the object that computes what an evaluation at a candidate is worth in each state.

        It is built from a belief, which is what is known so far.
        """


@dataclass(frozen=True)
class ConBO:
    """A recipe for the acquisition function ConBO: the value of an evaluation, averaged over all states.

    An evaluation in one state also tells something about other states.  So its value in a state, such as the knowledge
    gradient, is averaged over the distribution of states P[s]: over all states, or over some that `states` chooses.
    """

    value: StateValueRecipe  # what an evaluation is worth in one state, such as a knowledge gradient
    states: StateRuleRecipe = DEFAULT_STATES  # how the states of the quadrature are chosen

    def build(self, belief: Belief, generator: torch.Generator) -> "ConditionalAcquisition | AveragedAcquisition":
        """Build the acquisition function from a belief, which is what is known so far."""
        value = self.value.build(belief, generator)
        if not isinstance(value, AveragesValues):
            return ConditionalAcquisition(belief, value, self.states.build(belief, generator))
        assert isinstance(belief.posterior, Averages)
        parts = []
        for own, posterior, weight in zip(value.values, belief.posterior.members, value.weights.tolist(), strict=True):
            member, share = replace(belief, posterior=posterior), max(weight, LEAST_SHARE)
            rule = self.states.shared(share).build(member, generator)
            parts.append(ConditionalAcquisition(member, own, rule, ceil(share * SCREENING_STATES)))
        return AveragedAcquisition(value.weights, tuple(parts))


class ConditionalAcquisition:
    """The acquisition function ConBO under one model: the value of an evaluation, averaged over all states.

    The value in a state is, for example, the knowledge gradient.  The average is over the distribution of states P[s].
    """

    climbs_logarithm = False

    def __init__(
        self, belief: Belief, value: StateValue, rule: StateRule, screening_states: int = SCREENING_STATES
    ) -> None:
        self._d_s, self.value, self.rule, self._belief = belief.n_state_dims, value, rule, belief
        self._screening_states = screening_states
        self._at_all_states = rule.complete and belief.posterior.batches_look_ahead
        # whether the values account for learned constraints
        self.includes_constraints: bool = getattr(value, "includes_constraints", False)

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """Simulator seeds of the observations; empty if the acquisition function does not depend on the seed."""
        return self.value.seen_seeds if isinstance(self.value, KnowsSeeds) else ()

    def for_seeds(self, seeds: Tensor) -> "ConditionalAcquisition":
        """Return the acquisition function for c points, where point i is evaluated with simulator seed `seeds[i]`."""
        assert isinstance(self.value, KnowsSeeds)
        return ConditionalAcquisition(self._belief, self.value.for_seeds(seeds), self.rule, self._screening_states)

    @cached_property
    def _importance(self) -> Callable[[Tensor], Tensor]:
        return self.value.rough(self.rule.pool)

    def screen(self, points: Tensor) -> Tensor:
        """Return cheap approximate values (c,) at points (c, d), to screen many points.

        A value is an integral over states.  It is approximated by a sum over states that are the same for all points.
        """
        if self._at_all_states:
            return self._importance(points) @ self.rule.pool_weights
        every = max(1, len(self.rule.pool) // self._screening_states)
        states, weights = self.rule.pool[::every], self.rule.pool_weights[::every]
        return self.value.rough(states)(points) @ (weights / weights.sum())

    def __call__(self, points: Tensor) -> Tensor:
        """Return the values (c,) at points (c, d), at least as accurate as those of `screen` and `local`.

        A value is an integral over states.  It is approximated by a sum, which may be over more states than in local
        searches.
        """
        return self.integral(points, LOOK_AGAIN)

    def integral(self, points: Tensor, times: int = 1) -> Tensor:
        """Return the values (c,) of the acquisition function at points (c, d): integrals over states.

        With `times` = 2, about twice as many states are used for each integral as in local searches, if the rule that
        chooses the states allows it.
        """
        chosen = self.states_of(points, times)
        gains = self.value.at(chosen.states)(points, torch.arange(len(points), device=points.device))
        return (chosen.weights * gains.values).sum(-1)

    def states_of(self, points: Tensor, times: int = 1) -> WeightedStates:
        """Choose, for each of c points (c, d), the states and weights with which its integral over states is computed.

        With `times` = 2, about twice as many states are chosen as in local searches, if the rule that chooses them
        allows it.
        """
        return self.rule.around(points[:, : self._d_s], self._importance(points), times)

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return the function that local searches from r starts (r, d) maximize, with values and gradients.

        The states of the integral are chosen for each start and stay fixed during its search.
        """
        chosen = self.states_of(starts)
        ahead = self.value.at(chosen.states)

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            gains, weights = ahead(points, rows), chosen.weights[rows]
            return (weights * gains.values).sum(-1), gains.gradient(weights)

        if starts.is_cuda and isinstance(ahead, Recordable) and ahead.is_recordable:
            return recorded(function, starts)
        return function


@dataclass(frozen=True)
class AveragedAcquisition:
    """The acquisition function ConBO under an average of models: the weighted sum of its values under each model."""

    weights: Tensor  # (members,), weights of the models
    parts: tuple[ConditionalAcquisition, ...]  # the acquisition function under each model
    climbs_logarithm: ClassVar[bool] = False

    @property
    def includes_constraints(self) -> bool:
        """Whether the values account for learned constraints."""
        return all(part.includes_constraints for part in self.parts)

    @property
    def value(self) -> StateValue:
        """The value of an evaluation in each state: the weighted average of its values under the models."""
        return MixtureGains(tuple(part.value for part in self.parts), self.weights)

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """Simulator seeds of the observations; empty if no model's values depend on the seed."""
        return max((part.seen_seeds for part in self.parts), key=len)

    def for_seeds(self, seeds: Tensor) -> "AveragedAcquisition":
        """Return the acquisition function for c points, where point i is evaluated with simulator seed `seeds[i]`.

        Models without common random numbers ignore the seeds.
        """
        known = (part.for_seeds(seeds) if isinstance(part.value, KnowsSeeds) else part for part in self.parts)
        return AveragedAcquisition(self.weights, tuple(known))

    def screen(self, points: Tensor) -> Tensor:
        """Return cheap approximate values (c,) at points (c, d), to screen many points."""
        return weighted(self.weights, [part.screen(points) for part in self.parts])

    def __call__(self, points: Tensor) -> Tensor:
        """Return the values (c,) at points (c, d), at least as accurate as those of `screen` and `local`.

        A value is an integral over states, averaged over the models.  Each integral is approximated by a sum, which may
        be over more states than in local searches.
        """
        return self.integral(points, LOOK_AGAIN)

    def integral(self, points: Tensor, times: int = 1) -> Tensor:
        """Return the values (c,) at points (c, d): integrals over states, averaged over the models.

        With `times` = 2, about twice as many states are used for each integral as in local searches, if the rule that
        chooses the states allows it.
        """
        return weighted(self.weights, [part.integral(points, times) for part in self.parts])

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return the function that local searches from r starts (r, d) maximize, with values and gradients.

        The states of each integral are chosen for each start and stay fixed during its search.
        """
        functions = [part.local(starts) for part in self.parts]

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            values, gradients = zip(*(one(points, rows) for one in functions), strict=True)
            return weighted(self.weights, values), weighted(self.weights, gradients)

        return function
