"""A BoTorch model as a `Posterior`, computed through the model's own `posterior` method and autograd.

This is slower than the built-in models, which have closed-form gradients, and some capabilities are missing, such as
draws of whole functions.  The model gets numeric columns in [0, 1], and categories as 0, 1, 2, …, as BoTorch's models
expect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from conbo.errors import ConboError, shortened
from conbo.models.botorch_gains import BotorchGains, BotorchLines
from conbo.models.gains import GainRule
from conbo.models.mean_search import best_by_mean
from conbo.models.model import Model
from conbo.models.posterior import BestActions, Moments
from conbo.models.snapping import masked
from conbo.observations import Observations
from conbo.spaces import Space

if TYPE_CHECKING:  # otherwise imported on first use: BoTorch takes a second to import, and most studies do not need it
    from botorch.models.gpytorch import GPyTorchModel
    from botorch.posteriors.gpytorch import GPyTorchPosterior

# (points (n, d), rewards (n, 1), variances of the rewards (n, 1) or None) → model, not yet fitted
ModelFactory: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], "GPyTorchModel"]

ASSUMED_LENGTHSCALE = 0.3  # assumed for every state column, in the unit cube, because the model's kernel is not known
CHUNK = 256  # number of states that are searched at once; each is evaluated with every action of the pool
ITERATIONS = 20  # largest number of steps of a local search for the best action of a state


@dataclass(frozen=True)
class BotorchModel:
    """A `Model` that calls a user's function to create a BoTorch model, and fits it with BoTorch."""

    factory: ModelFactory

    def fit(self, space: Space, observations: Observations) -> "BotorchPosterior":
        """Create the user's model for standardized rewards, and fit it with BoTorch.

        Raises ConboError if the user's function fails or returns no BoTorch model, if the fit fails, or if predictions
        at the observed points are not finite.
        """
        from botorch.exceptions.errors import ModelFittingError
        from botorch.fit import fit_gpytorch_mll
        from gpytorch.mlls import ExactMarginalLogLikelihood
        from linear_operator.utils.errors import NanError, NotPSDError

        categories, noise = space.state_categories + space.action_categories, observations.noise
        inputs = model_inputs(observations.points, categories)
        model = self._model(inputs, observations.rewards[:, None], None if noise is None else noise[:, None])
        try:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            model.eval()
            model.requires_grad_(False)
            new_noise = float(noise.mean()) if noise is not None else float(model.likelihood.noise.mean())
            posterior = BotorchPosterior(model, categories, space.n_state_dims, new_noise)
            moments = posterior.moments(observations.points)
        except (ModelFittingError, NanError, NotPSDError) as error:
            raise ConboError(f"the model could not be fitted; its covariances must be finite: {error}") from error
        if not (moments.mean.isfinite().all() and moments.variance.isfinite().all()):
            raise ConboError(
                "a model's means and variances must be finite, but got others at points that were observed."
            )
        return posterior

    def _model(self, inputs: Tensor, rewards: Tensor, noise: Tensor | None) -> "GPyTorchModel":
        """Call the user's function, and raise ConboError if it fails or does not return a BoTorch model."""
        from botorch.models.gpytorch import GPyTorchModel

        rule = "`model` must be a function of points, rewards and noise that returns a BoTorch model"
        try:
            model: object = self.factory(inputs, rewards, noise)
        except ConboError:
            raise
        except Exception as error:
            raise ConboError(f"{rule}, but raised {type(error).__name__}: {error}") from error
        if not isinstance(model, GPyTorchModel) or not hasattr(model, "likelihood"):
            raise ConboError(f"{rule}, but returned {shortened(repr(model))}.")
        return model


@dataclass(frozen=True)
class BotorchPosterior:
    """A fitted BoTorch model that implements the `Posterior` protocol."""

    model: "GPyTorchModel"
    categories: tuple[int, ...]  # number of choices of each column, 0 for numbers
    n_state_dims: int  # number of state columns, which come first in a point
    noise: float  # variance of a new reward's noise

    def __str__(self) -> str:
        """Describe the type of the model and its noise, for the log."""
        return f"{type(self.model).__name__} of BoTorch, noise variance {self.noise:.2g}"

    def inputs(self, points: Tensor) -> Tensor:
        """Convert unit-cube points (..., d) to the model's inputs, in which categories are numbered 0, 1, 2, …"""
        return model_inputs(points, self.categories)

    def _joint(self, points: Tensor) -> "GPyTorchPosterior":
        """Return BoTorch's joint posterior of the noise-free rewards at q points (..., q, d)."""
        from botorch.posteriors.gpytorch import GPyTorchPosterior

        posterior = self.model.posterior(self.inputs(points))
        assert isinstance(posterior, GPyTorchPosterior)  # a Gaussian process
        return posterior

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean (...) of the noise-free reward at points (..., d)."""
        # each point is its own batch, so that no covariances are computed
        return self._joint(points[..., None, :]).mean[..., 0, 0]

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance (...) of the noise-free reward at points (..., d)."""
        return self._joint(points[..., None, :]).variance[..., 0, 0]

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances (...) of the noise of new rewards at points (..., d): the same everywhere."""
        return points.new_full(points.shape[:-1], self.noise)

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Gradients (..., d) of `noise_at` with respect to points: zeros, because the noise is the same everywhere."""
        return torch.zeros_like(points)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance (p, q) of the noise-free rewards at points a (p, d) and b (q, d)."""
        return self._joint(torch.cat([a, b])).distribution.covariance_matrix[: len(a), len(a) :]

    def prior_variance(self, states: Tensor) -> Tensor:
        """Return the assumed prior variances in states (c, d_s): ones (c,), because rewards are standardized."""
        return states.new_ones(len(states))

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and covariance (c, p, p) of each of c sets of p points (c, p, d)."""
        joint = self._joint(points)
        return joint.mean[..., 0], joint.distribution.covariance_matrix

    def pair_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariances (n,) of the noise-free rewards at pairs of points, a (n, d) and b (n, d)."""
        return self._joint(torch.stack([a, b], -2)).distribution.covariance_matrix[:, 0, 1]

    def moments(self, points: Tensor) -> Moments:
        """Posterior mean, variance and their gradients at points (n, d), by autograd."""
        with torch.enable_grad():
            variable = points.detach().clone().requires_grad_(True)
            posterior = self._joint(variable[:, None])
            mean, variance = posterior.mean[:, 0, 0], posterior.variance[:, 0, 0]
            gradients = [torch.autograd.grad(v.sum(), variable, retain_graph=True)[0] for v in (mean, variance)]
        return Moments(mean.detach(), variance.detach(), *gradients)

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) at points (n, d), and its gradient (n, d) with respect to them, by autograd."""
        with torch.enable_grad():
            variable = points.detach().clone().requires_grad_(True)
            mean = self.mean(variable)
            (gradient,) = torch.autograd.grad(mean.sum(), variable)
        return mean.detach(), gradient

    def leave_one_out(self) -> None:
        """Return None: leave-one-out predictions of a general BoTorch model have no closed form."""

    @property
    def batches_look_ahead(self) -> bool:
        """Whether `look_ahead_slopes` is fast for thousands of points: False, as it needs their joint posterior."""
        return False

    @property
    def state_lengthscales(self) -> Tensor:
        """Assumed lengthscales (d_s,) of the state columns: ASSUMED_LENGTHSCALE, as the model's own are unknown."""
        like = next(self.model.parameters())
        return torch.full((self.n_state_dims,), ASSUMED_LENGTHSCALE, dtype=torch.float64, device=like.device)

    def state_features(self, states: Tensor) -> Tensor:
        """Return states (..., d_s) as features (..., d_s), which `state_correlation` compares.

        Features are states divided by ASSUMED_LENGTHSCALE, because the model's own lengthscales are not known.
        """
        return states / ASSUMED_LENGTHSCALE

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Return assumed correlations (p, q) of p states a and q states b, given as `state_features` returns them.

        The correlation of two states is exp(-r² / 2), where r is the distance between their features.
        """
        return torch.exp(-torch.cdist(a, b).square() / 2)

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Return flags (m,) for m states (m, d_s), all False: no state is assumed to resemble a `known` one.

        Built-in models compare the kernel's correlation of the states with `least`, but the kernel of a BoTorch model
        is not known here.
        """
        return torch.zeros(len(states), dtype=torch.bool, device=states.device)

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """Return the posterior correlations (p, q) of points (p, d) and `chosen` points (q, d), negative ones set to 0.

        Built-in models compute similarities from prior covariances, but those of a BoTorch model are not known here.
        """
        scale = (self.variance(points)[:, None] * self.variance(chosen)).sqrt().clamp_min(1e-300)
        return (self.covariance(points, chosen) / scale).clamp(0, 1)

    def even_actions(self, actions: Tensor) -> Tensor:
        """Return the pool `actions` (p, d_x) unchanged.

        Built-in models with input warping move every second action, so that the moved ones are evenly spread after
        warping. Whether a BoTorch model warps its inputs is not known here.
        """
        return actions

    def action_search(self, space: Space, actions: Tensor) -> "BotorchSearch":
        """Return a search for the best actions of given states, which starts from a pool of actions (p, d_x)."""
        return BotorchSearch(self, space, actions)

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> BotorchLines:
        """Return the posterior means of q actions in each of m states, after one more reward at one of k candidates.

        The m states and their q actions may differ between candidates: `candidates` are (k, d), `states` (k, m, d_s),
        and `actions` (k, m, q, d_x). If the new reward is z standard deviations above its prediction, the posterior
        mean of an action becomes `mean` + `slope` z, a line in z.
        """
        return BotorchLines.at(self, candidates, states, actions)

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Return how strongly the posterior means at points (p, d) react to one more reward at candidates (c, d).

        If the reward at a candidate is z standard deviations above its prediction, the mean at a point rises by σ̃ z.
        The results are these slopes σ̃ (c, p).
        """
        sd = (self.variance(candidates) + self.noise_at(candidates)).sqrt()
        return self.covariance(candidates, points) / sd[:, None]

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> None:
        """Return None: whole functions cannot be drawn from a general BoTorch model."""

    def record(self) -> None:
        """Return None: a BoTorch model cannot be described by plain values."""

    def page_record(self, space: Space) -> None:
        """Return None: the report's web page cannot compute the predictions of a BoTorch model."""

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> None:
        """Return None: a fitted BoTorch model cannot be given new observations in place of its own."""


@dataclass(frozen=True)
class BotorchSearch:
    """A search for the actions with the highest posterior mean in given states, which starts from a pool of actions."""

    posterior: BotorchPosterior
    space: Space
    actions: Tensor  # (p, d_x), the pool

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Search for the actions with the highest posterior mean in states (m, d_s).

        In each state, local searches begin at the best actions of the pool. `starts` is the largest number of these
        searches, and each takes at most ITERATIONS steps. `steps` is ignored, because it limits the steps of Newton's
        method, and these quasi-Newton searches need more.
        """
        hints = partial(self._promising, k=starts)
        chunks = states.split(CHUNK)
        found = [best_by_mean(self.posterior, self.space, chunk, hints, starts, ITERATIONS) for chunk in chunks]
        return BestActions.joined(found)

    def _promising(self, states: Tensor, k: int) -> Tensor:
        """Return the k actions of the pool with the highest posterior means in each of m states: (m, k, d_x).

        Actions that violate linear constraints come last. A pool with fewer than k actions is returned as a whole.
        """
        m, p = len(states), len(self.actions)
        joint = torch.cat([states[:, None].expand(m, p, -1), self.actions.expand(m, p, -1)], -1)
        with torch.no_grad():
            scores = self.posterior.mean(joint.flatten(0, 1)).unflatten(0, (m, p))
        return self.actions[masked(self.space, states, self.actions, scores).topk(min(k, p), -1).indices]

    def gains(self, rule: GainRule) -> BotorchGains:
        """Return the object that computes knowledge gradients of candidates in states.

        `rule` says how a knowledge gradient is estimated from posterior means after a new reward.
        """
        return BotorchGains(self.posterior, self.space, self.actions, rule)


def model_inputs(points: Tensor, categories: tuple[int, ...]) -> Tensor:
    """Return unit-cube points (..., d) as inputs of a BoTorch model: categories become 0, 1, 2, …

    `categories` holds the number of choices of each of the d columns, 0 for a numeric column.
    """
    if not any(categories):
        return points
    columns = [
        (points[..., i] * count).floor().clamp(0, count - 1) if count else points[..., i]
        for i, count in enumerate(categories)
    ]
    return torch.stack(columns, -1)


def as_model(model: Model | ModelFactory) -> Model:
    """Return the given model, or a `BotorchModel` if a function that creates BoTorch models is given."""
    return model if hasattr(model, "fit") else BotorchModel(model)
