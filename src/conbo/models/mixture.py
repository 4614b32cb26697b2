"""Bayesian model averaging: a mixture of several posteriors (its members), weighted by the models' probabilities.

Predictions are the moments of the mixture.  With weights w, means μ_j and covariances C_j:

    μ = Σ w_j μ_j        C = Σ w_j (C_j + (μ_j - μ)(μ_j - μ)ᵀ)

The expected gain of an evaluation (its knowledge gradient) is the weighted mean of the members' gains.  The
look-ahead at given points is that of a single Gaussian process, which has the mean and covariance of the mixture.  The
features, lengthscales and correlation of states are those of the most probable member.

The weights are given: `fit.py` computes them from the evidence of each model, which `modes.py` estimates.

Reference: Hoeting, Madigan, Raftery & Volinsky (1999), Bayesian model averaging.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conbo.models.gains import GainRule, LookAheadLines
from conbo.models.mean_search import best_by_mean
from conbo.models.mixture_gains import MixtureGains
from conbo.models.posterior import ActionSearch, BestActions, ImaginesRewards, Moments, Paths, Posterior
from conbo.spaces import Space


@dataclass(frozen=True)
class Mixture:
    """A weighted average of the posteriors of several models, which are its members.

    Members are sorted by weight, the most probable first, except in an average over drawn hyperparameters.
    """

    members: tuple[Posterior, ...]
    weights: Tensor  # (members,), which add up to one

    def __str__(self) -> str:
        """Describe the members and their weights, for the log."""
        pairs = zip(self.weights.tolist(), self.members, strict=True)
        return "; ".join(f"{weight:.0%} {member}" for weight, member in pairs)

    @property
    def leader(self) -> Posterior:
        """The posterior of the first member.

        It is the most probable model, except in averages over drawn hyperparameters, whose members are not sorted.
        """
        return self.members[0]

    def most_probable(self, share: float) -> Posterior:
        """Return the average of the most probable models alone: the fewest whose total weight is at least `share`.

        If one model is enough, the result is its posterior. The members must be sorted by weight, which averages over
        drawn hyperparameters are not.
        """
        count = 1 + int((self.weights.cumsum(0)[:-1] < share).sum())
        if count == 1:
            return self.leader
        return Mixture(self.members[:count], self.weights[:count] / self.weights[:count].sum())

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""
        return self.leader.n_state_dims

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean (n,) of the noise-free reward at points (n, d)."""
        return self._average([member.mean(points) for member in self.members])

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance (n,) of the noise-free reward at points (n, d)."""
        means = torch.stack([member.mean(points) for member in self.members])
        return self._average([m.variance(points) for m in self.members]) + self._average(self._apart(means).square())

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance (p, q) of the noise-free rewards at points a (p, d) and b (q, d)."""
        apart = [self._apart(torch.stack([m.mean(points) for m in self.members])) for points in (a, b)]
        within = self._average([member.covariance(a, b) for member in self.members])
        return within + torch.einsum("j,jp,jq->pq", self.weights, *apart)

    def prior_variance(self, states: Tensor) -> Tensor:
        """Return the weighted mean of the members' prior variances (c,) of the noise-free reward in states (c, d_s)."""
        return self._average([member.prior_variance(states) for member in self.members])

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and covariance (c, p, p) of each of c sets of p points (c, p, d)."""
        means, covariances = (torch.stack(part) for part in zip(*(m.joint(points) for m in self.members), strict=True))
        apart = self._apart(means)
        between = torch.einsum("j,jcp,jcq->cpq", self.weights, apart, apart)
        return self._average(means), self._average(covariances) + between

    def moments(self, points: Tensor) -> Moments:
        """Posterior mean, variance and their gradients at points (n, d)."""
        parts = [member.moments(points) for member in self.members]
        apart = self._apart(torch.stack([part.mean for part in parts]))
        gradients = torch.stack([part.mean_gradient for part in parts])
        slopes = 2 * apart[..., None] * self._apart(gradients)
        return Moments(
            self._average([part.mean for part in parts]),
            self._average([part.variance for part in parts]) + self._average(apart.square()),
            self._average(gradients),
            self._average([part.variance_gradient for part in parts]) + self._average(slopes),
        )

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) at points (n, d), and its gradient (n, d) with respect to them."""
        means, gradients = zip(*(member.mean_and_gradient(points) for member in self.members), strict=True)
        return self._average(means), self._average(gradients)

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances (n,) of the noise of new rewards at points (n, d)."""
        return self._average([member.noise_at(points) for member in self.members])

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Gradients (n, d) of `noise_at` with respect to the points (n, d)."""
        return self._average([member.noise_gradient(points) for member in self.members])

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Return leave-one-out residuals (n,) of the observed rewards, and predictive standard deviations (n,).

        The standard deviations include noise. The weights of the averaged models are those given all rewards; they are
        not computed anew without the reward that is left out. None if a model cannot compute residuals.
        """
        known = [found for member in self.members if (found := member.leave_one_out()) is not None]
        if len(known) < len(self.members):
            return None
        residuals, deviations = (torch.stack(part) for part in zip(*known, strict=True))
        between = self._average(self._apart(residuals).square())
        return self._average(residuals), (self._average(deviations.square()) + between).sqrt()

    @property
    def state_lengthscales(self) -> Tensor:
        """Lengthscales (d_s,) of the state columns, in the unit cube, under the most probable model."""
        return self.leader.state_lengthscales

    def state_features(self, states: Tensor) -> Tensor:
        """Return states (..., d_s) as features of the most probable model: the inputs of `state_correlation`."""
        return self.leader.state_features(states)

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Return correlations (p, q) of states: how similarly their rewards depend on the action.

        They are those of the most probable model. `a` and `b` are p and q states as `state_features` returns them.
        """
        return self.leader.state_correlation(a, b)

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Return flags (m,): which states (m, d_s) resemble one of k known states (k, d_s) under every averaged model.

        Two states resemble each other if their correlation is at least `least`.
        """
        return torch.stack([member.resemble(states, known, least) for member in self.members]).all(0)

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """Return similarities (p, q) in [0, 1] of points (p, d) and `chosen` points (q, d).

        A similarity says how much the reward at a chosen point tells about the reward at the other point.
        """
        return self._average([member.similarity(points, chosen) for member in self.members])

    @property
    def batches_look_ahead(self) -> bool:
        """Whether `look_ahead_slopes` is fast for thousands of points under all averaged models."""
        return all(member.batches_look_ahead for member in self.members)

    def even_actions(self, actions: Tensor) -> Tensor:
        """Return the pool `actions` (p, d_x) with the inverse input warping applied to every second action.

        The given actions are evenly spread in the unit cube. The changed ones are evenly spread after the input warping
        of the most probable model.
        """
        return self.leader.even_actions(actions)

    def action_search(self, space: Space, actions: Tensor) -> "MixtureSearch":
        """Return a search for the best actions of given states, which starts from a pool of actions (p, d_x)."""
        searches = tuple(member.action_search(space, actions) for member in self.members)
        return MixtureSearch(self, space, actions, searches)

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> "MixtureLines":
        """Return the posterior means of q actions in each of m states, after one more reward at each of k candidates.

        The m states and their q actions may differ between candidates: `candidates` are (k, d), `states` (k, m, d_s),
        and `actions` (k, m, q, d_x). If the new reward is z standard deviations above its prediction, the posterior
        mean of an action is the line mean + slope z.
        """
        lines = [member.look_ahead_lines(candidates, states, actions) for member in self.members]
        return MixtureLines(self, lines, NewReward.of(self, candidates))

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Return how strongly the posterior means at points (p, d) react to one more reward at candidates (c, d).

        If the reward at a candidate is z standard deviations above its prediction, the mean at a point rises by σ̃ z.
        The results are these slopes σ̃ (c, p).
        """
        sd = (self.variance(candidates) + self.noise_at(candidates)).sqrt()
        return self.covariance(candidates, points) / sd[:, None]

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> "MixturePaths | None":
        """Draw n functions from the mixture; None if one of the chosen models cannot draw functions.

        The model of each function is chosen at random, with the weights as probabilities. `features` is the number of
        random features that approximate the prior.
        """
        owners = torch.multinomial(self.weights.cpu(), n, replacement=True, generator=generator).sort().values
        counts = torch.bincount(owners, minlength=len(self.members)).tolist()
        drawn = [
            m.draw_paths(count, generator, features) for m, count in zip(self.members, counts, strict=True) if count
        ]
        paths = [path for path in drawn if path is not None]
        return MixturePaths(paths) if len(paths) == len(drawn) else None

    def record(self) -> dict[str, Any] | None:
        """Return what a saved policy needs of each averaged model, and its weight; None if one cannot be saved."""
        records = [member.record() for member in self.members]
        if any(record is None for record in records):
            return None
        pairs = zip(self.weights.tolist(), records, strict=True)
        return {"members": [{"weight": weight, **(record or {})} for weight, record in pairs]}

    def page_record(self, space: Space) -> dict[str, Any] | None:
        """Return the values from which the report's web page computes the mixture; None if the page cannot do so.

        The values are the weights of the averaged models, and the `page_record` of each model.
        """
        records = [member.page_record(space) for member in self.members]
        if any(record is None for record in records):
            return None
        return {"members": records, "weights": self.weights.tolist()}

    def imagined(self, points: Tensor, seeds: Tensor) -> "Mixture":
        """Return the mixture given hypothetical rewards at points (k, d) with simulator seeds (k,).

        In each averaged model, the rewards equal the model's own posterior means, so only variances change. Models
        without effects of seeds stay unchanged.
        """
        known = (one.imagined(points, seeds) if isinstance(one, ImaginesRewards) else one for one in self.members)
        return Mixture(tuple(known), self.weights)

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> "Mixture | None":
        """Return the mixture given these observations instead of its own, with the same hyperparameters and weights.

        The result is None if some model cannot do this. The observations are `rewards` (n,) at `points` (n, d). `noise`
        (n,) holds the variances of the rewards' noise if they are known, and `seeds` (n,) the rewards' simulator seeds
        if they have any.
        """
        members = [member.conditioned_on(points, rewards, noise, seeds) for member in self.members]
        known = tuple(member for member in members if member is not None)
        return Mixture(known, self.weights) if len(known) == len(members) else None

    def _average(self, parts: Sequence[Tensor] | Tensor) -> Tensor:
        """Return the weighted mean over the averaged models, which are the first dimension of `parts`."""
        stacked = parts if isinstance(parts, Tensor) else torch.stack(tuple(parts))
        return torch.einsum("j,j...->...", self.weights, stacked)

    def _apart(self, parts: Tensor) -> Tensor:
        """Return the entries of `parts` (models, ...), one for each averaged model, minus their weighted mean."""
        return parts - self._average(parts)


@dataclass(frozen=True)
class MixtureSearch:
    """A search for the best actions of states under the mixture, made of one search for each member."""

    posterior: Mixture
    space: Space
    actions: Tensor  # (p, d_x)
    searches: tuple[ActionSearch, ...]

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Search for the actions with the highest mean of the mixture in states (m, d_s).

        The search has two stages in each state. First, local searches look for maxima of the posterior mean of each
        member of the mixture; `starts` is their number per member, and `steps` the largest number of steps of each.
        Then `starts` more local searches look for maxima of the mixture's mean. They begin at the best actions that the
        first stage found.
        """

        def ends(chunk: Tensor) -> Tensor:
            return torch.cat([search.best(chunk, starts, steps).basins for search in self.searches], 1)

        return best_by_mean(self.posterior, self.space, states, ends, starts)

    def gains(self, rule: GainRule) -> MixtureGains:
        """Return the object that computes knowledge gradients of candidates in states: weighted means over all models.

        `rule` says how a knowledge gradient is estimated from posterior means after a new reward.
        """
        values = tuple(search.gains(rule) for search in self.searches)
        return MixtureGains(values, self.posterior.weights)


@dataclass(frozen=True)
class NewReward:
    """The mean and variance that each of J members predicts for a new reward at each of k candidates."""

    mean: Tensor  # (J, k)
    mean_gradient: Tensor  # (J, k, d)
    variance: Tensor  # (J, k), noise included
    variance_gradient: Tensor  # (J, k, d)

    @classmethod
    def of(cls, mixture: Mixture, candidates: Tensor) -> "NewReward":
        """Return the predictions of all members for a new reward at candidates (k, d)."""
        moments = [member.moments(candidates) for member in mixture.members]
        noise = [member.noise_at(candidates) for member in mixture.members]
        slopes = [member.noise_gradient(candidates) for member in mixture.members]
        return cls(
            torch.stack([part.mean for part in moments]),
            torch.stack([part.mean_gradient for part in moments]),
            torch.stack([part.variance + own for part, own in zip(moments, noise, strict=True)]),
            torch.stack([part.variance_gradient + own for part, own in zip(moments, slopes, strict=True)]),
        )


class MixtureLines:
    """The look-ahead lines mean + slope z of the Gaussian process that has the mean and covariance of a mixture.

    A line is the posterior mean of one action if the reward at a candidate is z standard deviations above its
    prediction.
    """

    def __init__(self, mixture: Mixture, lines: Sequence[LookAheadLines], new: NewReward) -> None:
        self._mixture, self._lines, self._new = mixture, lines, new
        means = torch.stack([line.mean for line in lines])  # (J, k, m, q)
        self._apart = mixture._apart(means)
        self._new_apart = mixture._apart(new.mean)  # (J, k)
        total = mixture._average(new.variance) + mixture._average(self._new_apart.square())
        self._sd, self._own_sd = total.sqrt(), new.variance.sqrt()
        within = torch.stack([line.slope for line in lines]) * self._own_sd[..., None, None]
        between = self._apart * self._new_apart[..., None, None]
        self.mean = mixture._average(means)
        self.slope = mixture._average(within + between) / self._sd[:, None, None]

    def gradient(self, pull: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ pull · slope with respect to the k candidates.

        The sum is over q fixed actions in each of m fixed states, with weights `pull` (k, m, q). A slope is the
        change of an action's posterior mean if the candidate's reward is one standard deviation above its prediction.
        """
        mixture, new = self._mixture, self._new
        mean_apart = mixture._apart(new.mean_gradient)  # (J, k, d)
        parts = []
        for line, sd, slope, apart, moved in zip(
            self._lines, self._own_sd, new.variance_gradient, self._apart, mean_apart, strict=True
        ):
            own = (pull * line.slope).sum((1, 2)) / (2 * sd)
            along = (pull * apart).sum((1, 2))
            parts.append(sd[:, None] * line.gradient(pull) + own[:, None] * slope + along[:, None] * moved)
        total_slope = mixture._average(new.variance_gradient + 2 * self._new_apart[..., None] * mean_apart)
        total = (pull * self.slope).sum((1, 2))
        numerator = mixture._average(parts) - (total / (2 * self._sd))[:, None] * total_slope
        return numerator / self._sd[:, None]


class MixturePaths:
    """Sample paths that were drawn from several posteriors, in the order of these posteriors."""

    def __init__(self, paths: Sequence[Paths]) -> None:
        self._paths = paths
        self._first = [sum(path.n for path in paths[:place]) for place in range(len(paths))]

    @property
    def n(self) -> int:
        """Number of drawn functions."""
        return sum(path.n for path in self._paths)

    def __call__(self, points: Tensor) -> Tensor:
        """Return the values (p, n) of all n functions at points (p, d)."""
        return torch.cat([path(points) for path in self._paths], -1)

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (p,) and gradients (p, d) at points (p, d); point i uses the function with index `draws[i]`."""
        values, gradients = points.new_empty(len(points)), torch.empty_like(points)
        for path, first in zip(self._paths, self._first, strict=True):
            mine = (draws >= first) & (draws < first + path.n)
            if bool(mine.any()):
                values[mine], gradients[mine] = path.along(points[mine], draws[mine] - first)
        return values, gradients
