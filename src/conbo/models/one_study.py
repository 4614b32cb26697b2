"""The posterior of one study, taken from a joint posterior of an earlier study and this one.

Both studies are modeled together; a category in the first state column says which one a point belongs to. How much the
earlier study says about this one is a hyperparameter like any other, so it follows the evidence. Callers see only the
points of this study: the category is put before their states, and removed from gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from conbo.models.posterior import (
    ActionSearch,
    BestActions,
    GainRule,
    LookAheadLines,
    Moments,
    Paths,
    Posterior,
    StateGains,
    StateValue,
)
from conbo.observations import Observations
from conbo.spaces import Space

EARLIER, THIS = 0.25, 0.75  # unit-interval codes of the two categories


def of_study(place: float, rows: Tensor) -> Tensor:
    """Rows (..., d) with the code `place` of their study's category in front."""
    return torch.cat([rows.new_full((*rows.shape[:-1], 1), place), rows], -1)


def of_both(earlier: Observations, these: Observations) -> Observations:
    """The observations of both studies, with the study's category in front, and noise variances if both have them."""
    noise = None
    if earlier.noise is not None and these.noise is not None:
        noise = torch.cat([earlier.noise, these.noise])
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
    """This study's posterior, with the `Posterior` protocol."""

    whole: Posterior
    space: Space  # the space of both studies, with the study's category
    n: int  # number of observations of this study, which come last
    earlier: Observations  # observations of the earlier study, standardized like those of this study

    def __str__(self) -> str:
        """The fitted model, for the log."""
        return f"{self.whole}, with an earlier study"

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""
        return self.whole.n_state_dims - 1

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean of points (n, d)."""
        return self.whole.mean(_of_this(points))

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance of the noise-free reward at points (n, d)."""
        return self.whole.variance(_of_this(points))

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance between points a (p, d) and b (q, d)."""
        return self.whole.covariance(_of_this(a), _of_this(b))

    def prior_variance(self, states: Tensor) -> Tensor:
        """Variance (c,) of a reward in states (c, d_s) before any observation."""
        return self.whole.prior_variance(_of_this(states))

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and covariance (c, p, p) of each of c sets of points (c, p, d)."""
        return self.whole.joint(_of_this(points))

    def moments(self, points: Tensor) -> Moments:
        """Mean, variance and their gradients at points (n, d)."""
        found = self.whole.moments(_of_this(points))
        return replace(
            found, mean_gradient=found.mean_gradient[:, 1:], variance_gradient=found.variance_gradient[:, 1:]
        )

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) of points (n, d) and its gradient (n, d)."""
        mean, gradient = self.whole.mean_and_gradient(_of_this(points))
        return mean, gradient[:, 1:]

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances of the noise of new rewards at points (n, d)."""
        return self.whole.noise_at(_of_this(points))

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Gradients (n, d) of the noise variances of new rewards."""
        return self.whole.noise_gradient(_of_this(points))[..., 1:]

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Leave-one-out residuals (n,) and predictive standard deviations (n,) of this study's rewards."""
        found = self.whole.leave_one_out()
        return None if found is None else (found[0][len(found[0]) - self.n :], found[1][len(found[1]) - self.n :])

    @property
    def state_lengthscales(self) -> Tensor:
        """Lengthscales (d_s,) of the states, in the unit cube."""
        return self.whole.state_lengthscales[1:]

    def state_features(self, states: Tensor) -> Tensor:
        """States (..., d_s) as features; the closer two of these are, the more similar their states are."""
        return self.whole.state_features(_of_this(states))

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Correlations (p, q) between states, given as features: how similarly their rewards depend on the action."""
        return self.whole.state_correlation(a, b)

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Which states (m, d_s) correlate highly with one of the known states (k, d_s)."""
        return self.whole.resemble(_of_this(states), _of_this(known), least)

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """How much a reward at each chosen point (q, d) already says about each point (p, d): (p, q)."""
        return self.whole.similarity(_of_this(points), _of_this(chosen))

    @property
    def batches_look_ahead(self) -> bool:
        """Whether look-ahead of the joint posterior is fast."""
        return self.whole.batches_look_ahead

    def even_actions(self, actions: Tensor) -> Tensor:
        """Actions (p, d_x), some of them moved; the moved ones are evenly spread after input warping."""
        return self.whole.even_actions(actions)

    def action_search(self, space: Space, actions: Tensor) -> "_Search":
        """A search over actions that starts from a pool (p, d_x)."""
        return _Search(self.whole.action_search(self.space, actions))

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> "_Lines":
        """Look-ahead lines mean + slope z of actions (k, m, q, d_x) in states (k, m, d_s), for candidates (k, d)."""
        return _Lines(self.whole.look_ahead_lines(_of_this(candidates), _of_this(states), actions))

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Slopes σ̃ (c, p) of the look-ahead means at points (p, d), for every candidate (c, d)."""
        return self.whole.look_ahead_slopes(_of_this(candidates), _of_this(points))

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> "_Paths | None":
        """n functions drawn from the posterior, by `features` features of the prior; None if this is impossible."""
        drawn = self.whole.draw_paths(n, generator, features)
        return None if drawn is None else _Paths(drawn)

    def record(self) -> dict[str, Any] | None:
        """The record of the joint model, with the earlier study's observations as `prior`."""
        model, earlier = self.whole.record(), self.earlier
        if model is None:
            return None
        noise = None if earlier.noise is None else earlier.noise.tolist()
        prior = {"points": earlier.points.tolist(), "rewards": earlier.rewards.tolist(), "noise": noise}
        return {**model, "prior": prior}

    def page_record(self, space: Space) -> None:
        """Always None, because the page of a report can show only one study."""

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> None:
        """Always None, because a saved policy rebuilds the joint posterior instead."""


@dataclass(frozen=True)
class _Search:
    whole: ActionSearch

    @property
    def actions(self) -> Tensor:
        """The pool (p, d_x)."""
        return self.whole.actions

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Search for the actions with the highest posterior mean in states (m, d_s)."""
        return self.whole.best(_of_this(states), starts, steps)

    def gains(self, rule: GainRule) -> "_Values":
        """Expected gains of states."""
        return _Values(self.whole.gains(rule))


@dataclass(frozen=True)
class _Values:
    whole: StateValue

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Prepare shared states (m, d_s); the result is a function from candidates (r, d) to rough values (r, m)."""
        function = self.whole.rough(_of_this(states))
        return lambda candidates: function(_of_this(candidates))

    def at(self, states: Tensor) -> "Callable[[Tensor, Tensor], _Gains]":
        """Prepare sets of states (r, m, d_s); the result maps candidates (k, d) and indices of their sets to gains."""
        function = self.whole.at(_of_this(states))
        return lambda candidates, rows: _Gains(function(_of_this(candidates), rows))


@dataclass(frozen=True)
class _Gains:
    whole: StateGains

    @property
    def values(self) -> Tensor:
        """Gains (k, m) of candidates at states."""
        return self.whole.values

    def gradient(self, weights: Tensor) -> Tensor:
        """Gradient (k, d) of Σ_i weights[:, i] values[:, i] with respect to the candidates."""
        return self.whole.gradient(weights)[..., 1:]


@dataclass(frozen=True)
class _Lines:
    whole: LookAheadLines

    @property
    def mean(self) -> Tensor:
        """Intercepts (k, m, q) of the lines."""
        return self.whole.mean

    @property
    def slope(self) -> Tensor:
        """Slopes (k, m, q) of the lines."""
        return self.whole.slope

    def gradient(self, pull: Tensor) -> Tensor:
        """Gradient (k, d) of Σ pull · slope with respect to the candidates, for pull (k, m, q)."""
        return self.whole.gradient(pull)[..., 1:]


@dataclass(frozen=True)
class _Paths:
    whole: Paths

    @property
    def n(self) -> int:
        """Number of functions."""
        return self.whole.n

    def __call__(self, points: Tensor) -> Tensor:
        """All draws at points (p, d): (p, n)."""
        return self.whole(_of_this(points))

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Values (p,) and gradients (p, d) at points (p, d); point i uses draw `draws[i]`."""
        values, gradients = self.whole.along(_of_this(points), draws)
        return values, gradients[:, 1:]
