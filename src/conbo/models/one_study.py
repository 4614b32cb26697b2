"""The posterior of one study that learns from an earlier one: a view of a joint posterior of both studies.

Both studies are modeled together, with a category in the first state column that says which study a point belongs to.
How much the earlier study tells about this one is a hyperparameter, learned from the rewards like any other.  Callers
deal with points of this study only: `OneStudy` puts the category in front of them, and removes it from gradients.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conbo.models.converted import Converted, ConvertedValues
from conbo.models.gains import GainRule
from conbo.models.posterior import ActionSearch, BestActions
from conbo.observations import Observations
from conbo.spaces import Space

EARLIER, THIS = 0.25, 0.75  # unit-interval codes of the two categories


def of_study(place: float, rows: Tensor) -> Tensor:
    """Return points or states (..., d) with a new first column that says which study they belong to.

    `place` is the value of this column in all rows: EARLIER or THIS.
    """
    return torch.cat([rows.new_full((*rows.shape[:-1], 1), place), rows], -1)


def of_both(earlier: Observations, these: Observations) -> Observations:
    """Join the observations of an earlier study and of this one.

    Every point gets a new first column that says which study it belongs to. The joint observations have known noise
    variances only if both studies have them, or this one has no rewards yet.
    """
    noise = earlier.noise
    if noise is not None and len(these.rewards):
        noise = None if these.noise is None else torch.cat([noise, these.noise])
    return Observations(
        torch.cat([of_study(EARLIER, earlier.points), of_study(THIS, these.points)]),
        torch.cat([earlier.rewards, these.rewards]),
        pending=of_study(THIS, these.pending),
        noise=noise,
        limits=these.limits,
    )


@dataclass(frozen=True)
class OneStudy(Converted):
    """The posterior of a study that learns from an earlier one: a view of the joint posterior of both studies.

    `whole` is the joint posterior.
    """

    space: Space  # the space of both studies, with the study's category
    n: int  # number of observations of this study, which come last
    earlier: Observations  # observations of the earlier study, standardized like those of this study

    def __str__(self) -> str:
        """Describe the fitted model, for the log."""
        return f"{self.whole}, with an earlier study"

    def converted(self, points: Tensor) -> Tensor:
        """Return points (..., d) with a new first column, which says that they belong to this study."""
        return of_study(THIS, points)

    def converted_states(self, states: Tensor) -> Tensor:
        """Return states (..., d_s) with a new first column, which says that they belong to this study."""
        return of_study(THIS, states)

    def converted_actions(self, states: Tensor, actions: Tensor) -> Tensor:
        """Return the actions (..., q, d_x) unchanged, because both studies have the same actions."""
        return actions

    def pulled(self, gradient: Tensor) -> Tensor:
        """Return gradients without their first column, that of the study."""
        return gradient[..., 1:]

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""
        return self.whole.n_state_dims - 1

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Return leave-one-out residuals (n,) and predictive standard deviations (n,) of this study's rewards.

        The standard deviations include noise. None if the joint posterior cannot compute them.
        """
        found = self.whole.leave_one_out()
        return None if found is None else (found[0][len(found[0]) - self.n :], found[1][len(found[1]) - self.n :])

    @property
    def state_lengthscales(self) -> Tensor:
        """Lengthscales (d_s,) of the state columns, in the unit cube."""
        return self.whole.state_lengthscales[1:]

    def action_search(self, space: Space, actions: Tensor) -> "_Search":
        """Return an object that searches for the best action of a state, starting from a pool of actions (p, d_x).

        The argument `space` is ignored, because the joint posterior needs the space of both studies.
        """
        return _Search(self, self.whole.action_search(self.space, actions))

    def record(self) -> dict[str, Any] | None:
        """Return the joint model as plain values, for a saved policy; None if the model cannot be saved.

        The entry `prior` holds the observations of the earlier study.
        """
        model, earlier = self.whole.record(), self.earlier
        if model is None:
            return None
        noise = None if earlier.noise is None else earlier.noise.tolist()
        prior = {"points": earlier.points.tolist(), "rewards": earlier.rewards.tolist(), "noise": noise}
        return {**model, "prior": prior}

    def page_record(self, space: Space) -> None:
        """Return None, because the report's web page cannot compute joint models of two studies."""

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> None:
        """Return None, because a joint model of two studies cannot be given new observations in place of its own."""


@dataclass(frozen=True)
class _Search:
    """A search for the best actions in states of this study, under the joint posterior of both studies."""

    posterior: OneStudy
    whole: ActionSearch

    @property
    def actions(self) -> Tensor:
        return self.whole.actions

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        return self.whole.best(self.posterior.converted_states(states), starts, steps)

    def gains(self, rule: GainRule) -> ConvertedValues:
        return ConvertedValues(self.posterior, self.whole.gains(rule))
