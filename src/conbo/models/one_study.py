"""The posterior of one study that learns from an earlier one: a view of a joint posterior of both studies.

Both studies are modeled together, with a category in the first state column that says which study a point belongs to.
How much the earlier study tells about this one is a hyperparameter, learned from the rewards like any other.  Callers
deal with points of this study only: `OneStudy` puts the category in front of them, and removes it from gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from conbo.models.gains import GainRule, LookAheadLines, StateGains, StateValue
from conbo.models.posterior import ActionSearch, BestActions, Moments, Paths, Posterior
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


def _of_this(rows: Tensor) -> Tensor:
    return of_study(THIS, rows)


@dataclass(frozen=True)
class OneStudy:
    """The posterior of a study that learns from an earlier one: a view of the joint posterior of both studies."""

    whole: Posterior  # the joint posterior of both studies
    space: Space  # the space of both studies, with the study's category
    n: int  # number of observations of this study, which come last
    earlier: Observations  # observations of the earlier study, standardized like those of this study

    def __str__(self) -> str:
        """Describe the fitted model, for the log."""
        return f"{self.whole}, with an earlier study"

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""
        return self.whole.n_state_dims - 1

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean (n,) of the noise-free reward at points (n, d)."""
        return self.whole.mean(_of_this(points))

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance (n,) of the noise-free reward at points (n, d)."""
        return self.whole.variance(_of_this(points))

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance (p, q) of the noise-free rewards at points a (p, d) and b (q, d)."""
        return self.whole.covariance(_of_this(a), _of_this(b))

    def prior_variance(self, states: Tensor) -> Tensor:
        """Return the prior variance (c,) of the noise-free reward in states (c, d_s)."""
        return self.whole.prior_variance(_of_this(states))

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and covariance (c, p, p) of each of c sets of p points (c, p, d)."""
        return self.whole.joint(_of_this(points))

    def moments(self, points: Tensor) -> Moments:
        """Posterior mean, variance and their gradients at points (n, d)."""
        found = self.whole.moments(_of_this(points))
        return replace(
            found, mean_gradient=found.mean_gradient[:, 1:], variance_gradient=found.variance_gradient[:, 1:]
        )

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) at points (n, d), and its gradient (n, d) with respect to them."""
        mean, gradient = self.whole.mean_and_gradient(_of_this(points))
        return mean, gradient[:, 1:]

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances (n,) of the noise of new rewards at points (n, d)."""
        return self.whole.noise_at(_of_this(points))

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Gradients (n, d) of `noise_at` with respect to the points (n, d)."""
        return self.whole.noise_gradient(_of_this(points))[..., 1:]

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

    def state_features(self, states: Tensor) -> Tensor:
        """Return states (..., d_s) as feature vectors; the closer two vectors, the more similar the states."""
        return self.whole.state_features(_of_this(states))

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Return correlations (p, q) of states: how similarly their rewards depend on the action.

        `a` holds p states and `b` holds q states, as feature vectors from `state_features`.
        """
        return self.whole.state_correlation(a, b)

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Return flags (m,): which states (m, d_s) have a correlation >= `least` with any `known` state (k, d_s)."""
        return self.whole.resemble(_of_this(states), _of_this(known), least)

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """Return similarities (p, q) in [0, 1] between points (p, d) and `chosen` points (q, d).

        A similarity says how much a reward at the chosen point tells about the reward at the other point.
        """
        return self.whole.similarity(_of_this(points), _of_this(chosen))

    @property
    def batches_look_ahead(self) -> bool:
        """Whether `look_ahead_slopes` is fast for thousands of points."""
        return self.whole.batches_look_ahead

    def even_actions(self, actions: Tensor) -> Tensor:
        """Return the pool `actions` (p, d_x) with the inverse input warping applied to every second action.

        The given actions are evenly spread in the unit cube; the changed ones are evenly spread after warping.
        """
        return self.whole.even_actions(actions)

    def action_search(self, space: Space, actions: Tensor) -> "_Search":
        """Return an object that searches for the best action of a state, starting from a pool of actions (p, d_x).

        The argument `space` is ignored, because the joint posterior needs the space of both studies.
        """
        return _Search(self.whole.action_search(self.space, actions))

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> "_Lines":
        """Return the posterior means of q actions in each of m states, as functions of one more reward at a candidate.

        Each of the k `candidates` (k, d) has its own m `states` (k, m, d_s), and each of these its own q `actions`
        (k, m, q, d_x). If the new reward is z standard deviations above its prediction, the posterior mean of an action
        is the line mean + slope z.
        """
        return _Lines(self.whole.look_ahead_lines(_of_this(candidates), _of_this(states), actions))

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Return how strongly the posterior means at points (p, d) react to one more reward at candidates (c, d).

        If the reward at a candidate is z standard deviations above its prediction, the mean at a point rises by σ̃ z.
        The results are these slopes σ̃ (c, p).
        """
        return self.whole.look_ahead_slopes(_of_this(candidates), _of_this(points))

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> "_Paths | None":
        """Draw n functions from the posterior; None if the model cannot draw functions.

        `features` is the number of random features that approximate the prior.
        """
        drawn = self.whole.draw_paths(n, generator, features)
        return None if drawn is None else _Paths(drawn)

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

    whole: ActionSearch

    @property
    def actions(self) -> Tensor:
        return self.whole.actions

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        return self.whole.best(_of_this(states), starts, steps)

    def gains(self, rule: GainRule) -> "_Values":
        return _Values(self.whole.gains(rule))


@dataclass(frozen=True)
class _Values:
    """An acquisition function, such as the knowledge gradient, for candidates of this study.

    It says what one more reward at a candidate is worth in each state of this study.
    """

    whole: StateValue

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        function = self.whole.rough(_of_this(states))
        return lambda candidates: function(_of_this(candidates))

    def at(self, states: Tensor) -> "Callable[[Tensor, Tensor], _Gains]":
        function = self.whole.at(_of_this(states))
        return lambda candidates, rows: _Gains(function(_of_this(candidates), rows))


@dataclass(frozen=True)
class _Gains:
    """Values of an acquisition function, such as the knowledge gradient, for candidates and states of this study.

    The class also computes gradients of the values with respect to the candidates.
    """

    whole: StateGains

    @property
    def values(self) -> Tensor:
        return self.whole.values

    def gradient(self, weights: Tensor) -> Tensor:
        return self.whole.gradient(weights)[..., 1:]


@dataclass(frozen=True)
class _Lines:
    """The look-ahead lines mean + slope z of this study.

    A line is the posterior mean of one action if the reward at a candidate is z standard deviations above its
    prediction.
    """

    whole: LookAheadLines

    @property
    def mean(self) -> Tensor:
        return self.whole.mean

    @property
    def slope(self) -> Tensor:
        return self.whole.slope

    def gradient(self, pull: Tensor) -> Tensor:
        return self.whole.gradient(pull)[..., 1:]


@dataclass(frozen=True)
class _Paths:
    """Sample paths of the joint posterior, as functions of the points of this study."""

    whole: Paths

    @property
    def n(self) -> int:
        return self.whole.n

    def __call__(self, points: Tensor) -> Tensor:
        return self.whole(_of_this(points))

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = self.whole.along(_of_this(points), draws)
        return values, gradients[:, 1:]
