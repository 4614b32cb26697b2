"""Any BoTorch model as a posterior, through its own `posterior` and autograd.

It is slower than the built-in models, whose formulas are written out, but estimators and methods are the same. Points
reach the model with numbers in the unit cube and categories as 0, 1, 2, …, as BoTorch's models expect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from conbo.ascent import ascend
from conbo.errors import ConboError, shortened
from conbo.models.botorch_gains import BotorchGains, BotorchLines
from conbo.models.posterior import BestActions, GainRule, Model, Moments
from conbo.models.snapping import action_limits, masked, snap_actions
from conbo.observations import Observations
from conbo.spaces import Space

if TYPE_CHECKING:  # otherwise imported on first use: BoTorch takes a second to import, and most studies do not need it
    from botorch.models.gpytorch import GPyTorchModel
    from botorch.posteriors.gpytorch import GPyTorchPosterior

# (points (n, d), rewards (n, 1), variances of the rewards (n, 1) or None) → model, not yet fitted
ModelFactory: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], "GPyTorchModel"]

ASSUMED_LENGTHSCALE = 0.3  # assumed for all states, in the unit cube, because nothing is known of the model's kernel
CHUNK = 256  # states per pass; each is evaluated with every action of the pool
ITERATIONS = 20  # steps of a local search for the best action of a state


@dataclass(frozen=True)
class BotorchModel:
    """A model that a user's function makes and BoTorch fits."""

    factory: ModelFactory

    def fit(self, space: Space, observations: Observations) -> "BotorchPosterior":
        """Build the user's model on standardized rewards and fit it."""
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
        """The model that the user's function makes; raises ConboError if the result is not a model."""
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
    """A fitted BoTorch model with the `Posterior` protocol."""

    model: "GPyTorchModel"
    categories: tuple[int, ...]  # number of choices of each column, 0 for numbers
    n_state_dims: int
    noise: float  # variance of a new observation's noise

    def __str__(self) -> str:
        """The kind of the model, for the log."""
        return f"{type(self.model).__name__} of BoTorch, noise variance {self.noise:.2g}"

    def inputs(self, points: Tensor) -> Tensor:
        """Convert unit-cube points to the model's inputs."""
        return model_inputs(points, self.categories)

    def _joint(self, points: Tensor) -> "GPyTorchPosterior":
        """BoTorch's joint posterior of the expected rewards of q points (..., q, d)."""
        from botorch.posteriors.gpytorch import GPyTorchPosterior

        posterior = self.model.posterior(self.inputs(points))
        assert isinstance(posterior, GPyTorchPosterior)  # a Gaussian process
        return posterior

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean of points (..., d). Each point is a batch of its own, so no covariances are computed."""
        return self._joint(points[..., None, :]).mean[..., 0, 0]

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance of the noise-free reward at points (..., d)."""
        return self._joint(points[..., None, :]).variance[..., 0, 0]

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances of the noise of new rewards at points (..., d)."""
        return points.new_full(points.shape[:-1], self.noise)

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Zeros (..., d), because noise is assumed to be the same everywhere."""
        return torch.zeros_like(points)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance between points a (p, d) and b (q, d)."""
        return self._joint(torch.cat([a, b])).distribution.covariance_matrix[: len(a), len(a) :]

    def prior_variance(self, states: Tensor) -> Tensor:
        """Ones (c,) for states (c, d_s), because rewards are standardized."""
        return states.new_ones(len(states))

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and covariance (c, p, p) of each of c sets of points (c, p, d)."""
        joint = self._joint(points)
        return joint.mean[..., 0], joint.distribution.covariance_matrix

    def pair_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance of each pair of points a (n, d), b (n, d)."""
        return self._joint(torch.stack([a, b], -2)).distribution.covariance_matrix[:, 0, 1]

    def moments(self, points: Tensor) -> Moments:
        """Mean, variance and their gradients at points (n, d), by autograd."""
        with torch.enable_grad():
            variable = points.detach().clone().requires_grad_(True)
            posterior = self._joint(variable[:, None])
            mean, variance = posterior.mean[:, 0, 0], posterior.variance[:, 0, 0]
            gradients = [torch.autograd.grad(v.sum(), variable, retain_graph=True)[0] for v in (mean, variance)]
        return Moments(mean.detach(), variance.detach(), *gradients)

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) of points (n, d) and its gradient (n, d), by autograd."""
        with torch.enable_grad():
            variable = points.detach().clone().requires_grad_(True)
            mean = self.mean(variable)
            (gradient,) = torch.autograd.grad(mean.sum(), variable)
        return mean.detach(), gradient

    def leave_one_out(self) -> None:
        """Always None: leave-one-out predictions of a BoTorch model have no closed form."""

    @property
    def batches_look_ahead(self) -> bool:
        """False, because covariances are computed pair by pair."""
        return False

    @property
    def state_lengthscales(self) -> Tensor:
        """Assumed lengthscales of the states (d_s,)."""
        like = next(self.model.parameters())
        return torch.full((self.n_state_dims,), ASSUMED_LENGTHSCALE, dtype=torch.float64, device=like.device)

    def state_features(self, states: Tensor) -> Tensor:
        """States (..., d_s) in units of the assumed lengthscales."""
        return states / ASSUMED_LENGTHSCALE

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Correlations (p, q) of states given as features: a squared exponential of their distance."""
        return torch.exp(-torch.cdist(a, b).square() / 2)

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """False for every state, because nothing is known of the model's kernel."""
        return torch.zeros(len(states), dtype=torch.bool, device=states.device)

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """Posterior correlations (p, q), cut off at 0. The prior is not used, because it need not be stationary."""
        scale = (self.variance(points)[:, None] * self.variance(chosen)).sqrt().clamp_min(1e-300)
        return (self.covariance(points, chosen) / scale).clamp(0, 1)

    def even_actions(self, actions: Tensor) -> Tensor:
        """The actions themselves, because nothing is known of any warping."""
        return actions

    def action_search(self, space: Space, actions: Tensor) -> "BotorchSearch":
        """A search over actions that starts from a pool (p, d_x)."""
        return BotorchSearch(self, space, actions)

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> BotorchLines:
        """Look-ahead lines mean + slope z of actions (k, m, q, d_x) in states (k, m, d_s), for candidates (k, d)."""
        return BotorchLines.at(self, candidates, states, actions)

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Slopes σ̃ (c, p) of the look-ahead means at points (p, d), for every candidate (c, d)."""
        sd = (self.variance(candidates) + self.noise_at(candidates)).sqrt()
        return self.covariance(candidates, points) / sd[:, None]

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> None:
        """Always None: whole functions cannot be drawn from a BoTorch model."""

    def record(self) -> None:
        """Always None: a BoTorch model has no plain record."""

    def page_record(self, space: Space) -> None:
        """Always None: the page of a report cannot compute a BoTorch model."""

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> None:
        """Always None: a fitted BoTorch model cannot be conditioned on other observations."""


@dataclass(frozen=True)
class BotorchSearch:
    """A search over actions: score the pool state by state, then refine by autograd."""

    posterior: BotorchPosterior
    space: Space
    actions: Tensor  # (p, d_x)

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Search for the actions with the highest posterior mean in states (m, d_s); `steps` is ignored."""
        return BestActions.joined([self._best(chunk, starts) for chunk in states.split(CHUNK)])

    def _best(self, states: Tensor, starts: int) -> BestActions:
        m, p, d_x = len(states), len(self.actions), self.actions.shape[-1]
        joint = torch.cat([states[:, None].expand(m, p, -1), self.actions.expand(m, p, d_x)], -1)
        with torch.no_grad():
            scores = self.posterior.mean(joint.flatten(0, 1)).unflatten(0, (m, p))
        scores = masked(self.space, states, self.actions, scores)
        k = min(starts, p)
        first = self.actions[scores.topk(k, -1).indices].flatten(0, 1)  # (m·k, d_x)
        rows = states.repeat_interleave(k, 0)

        def function(x: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            mean, gradient = self.posterior.mean_and_gradient(torch.cat([rows[which], x], -1))
            return mean, gradient[:, -d_x:]

        lower, upper = torch.zeros_like(first[0]), torch.ones_like(first[0])
        limits = action_limits(self.space, rows)
        ascent = ascend(function, first, lower, upper, iterations=ITERATIONS, limits=limits)
        ends = snap_actions(self.space, ascent.points, rows)
        with torch.no_grad():
            mean = self.posterior.mean(torch.cat([rows, ends], -1)).unflatten(0, (m, k))
        return BestActions.of_climbs(ends.unflatten(0, (m, k)), mean)

    def gains(self, rule: GainRule) -> BotorchGains:
        """Expected gains of states; searches for look-ahead maxima start from the pool."""
        return BotorchGains(self.posterior, self.space, self.actions, rule)


def model_inputs(points: Tensor, categories: tuple[int, ...]) -> Tensor:
    """The inputs of the model: numbers stay in the unit cube, categories become 0, 1, 2, …"""
    if not any(categories):
        return points
    columns = [
        (points[..., i] * count).floor().clamp(0, count - 1) if count else points[..., i]
        for i, count in enumerate(categories)
    ]
    return torch.stack(columns, -1)


def as_model(model: Model | ModelFactory) -> Model:
    """The argument itself if it is a model; a function that makes BoTorch models becomes a `BotorchModel`."""
    return model if hasattr(model, "fit") else BotorchModel(model)
