"""The bridge to BoTorch: the conditional knowledge gradient as an acquisition function, and test functions as problems.

    α(s, x) = Σ_i w_i KG(s_i; (s, x)),   KG(s_i; ·) = E_y[max_x' μⁿ⁺¹(s_i, x')] - max_x'' μⁿ(s_i, x'')

Here (s, x) is the candidate, s_i are states with weights w_i, and μⁿ is the posterior mean after n observations. The
expectation over the outcome y of the candidate is estimated from nodes z_j of a standard normal variable: if y is z_j
standard deviations above its mean, the next posterior mean is v_j(x') = μⁿ(s_i, x') + z_j σ̃(s_i, x'). The slope
σ̃(s_i, x') is the posterior covariance of the outcomes at (s_i, x') and at the candidate, divided by the standard
deviation of y. The search for the best action x'_j, for every state and node, is not differentiated. Instead, the
derivative of x'_j follows from the implicit function theorem, with the Hessian H of v_j:

    ∂x'_j / ∂(s, x) = - H⁻¹ ∂² v_j / ∂x' ∂(s, x),   with coordinates of x'_j at a bound held fixed
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor
from torch.distributions import Distribution

from conbo.acquisition.convex_integral import ConvexIntegral, quantile_nodes
from conbo.acquisition.expected_max import expected_max
from conbo.errors import SettingError
from conbo.integrations.botorch_problems import problem_of
from conbo.models.botorch_gains import BotorchGains, BotorchLines, similarity
from conbo.models.gains import GainRule
from conbo.quasi_random import sobol
from conbo.spaces import Real, Space

__all__ = ["ConditionalKnowledgeGradient", "problem_of"]

POLISHING_STEPS = 2  # number of Newton steps that refine a best action after the search for it
AT_BOUND = 1e-9  # distance in the unit cube within which an action counts as being at its bound


@dataclass(frozen=True)
class _Posterior:
    """The posterior of a BoTorch model at points of the unit cube, whose first columns are the states."""

    model: Model
    columns: Tensor  # indices of the model's columns, states first
    bounds: Tensor  # (2, d), in the order of the columns
    transform: PosteriorTransform | None

    def inputs(self, points: Tensor) -> Tensor:
        """Convert points (..., d) of the unit cube to the units and the column order of the model."""
        low, high = self.bounds
        return (low + points * (high - low))[..., self.columns.argsort()]

    def points(self, inputs: Tensor) -> Tensor:
        """Convert the model's inputs (..., d) to points of the unit cube, states first."""
        low, high = self.bounds
        return (inputs[..., self.columns] - low) / (high - low)

    def mean(self, points: Tensor) -> Tensor:
        """Posterior means (n,) of the noise-free outcome at points (n, d)."""
        return self._at(points[..., None, :]).mean[..., 0, 0]

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variances (n,) of the noise-free outcome at points (n, d)."""
        return self._at(points[..., None, :]).variance[..., 0, 0]

    def noise_at(self, points: Tensor) -> Tensor:
        """Noise variances (n,) of new observations at points (n, d)."""
        noisy = self._at(points[..., None, :], noise=True).variance[..., 0, 0]
        return (noisy - self.variance(points)).clamp_min(0)

    def pair_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariances (n,) between the outcomes at point i of `a` (n, d) and at point i of `b` (n, d)."""
        return self._at(torch.stack([a, b], -2)).distribution.covariance_matrix[:, 0, 1]

    # returns Any, because BoTorch does not declare that posteriors have a distribution
    def _at(self, points: Tensor, noise: bool = False) -> Any:
        return self.model.posterior(self.inputs(points), observation_noise=noise, posterior_transform=self.transform)


class ConditionalKnowledgeGradient(AcquisitionFunction):
    """The knowledge gradient of one more observation (q = 1), averaged over states.

    In each state, this is the expected increase of the maximum of the posterior mean over all actions.

    Parameters
    ----------
    model
        Any BoTorch model with one output and a Gaussian posterior; more outputs need a `posterior_transform`. The
        outcome is maximized; to minimize an outcome, fit the model to its negative.
    state_dims
        Columns of the model's inputs that are states. All others are actions.
    state_distribution
        The states (m, len(state_dims)) to average over, in the units of the model, or a torch distribution of states,
        from which `n_states` are drawn once.
    weights
        Weights (m,) of the states, which are scaled to a sum of 1; by default they are equal.
    bounds
        Lower and upper bounds (2, d) on the d inputs of the model; by default the unit cube. Best actions are searched
        for within them.
    n_z
        Number of nodes for the expectation over the outcome of the observation; odd and at least 3.
    n_states
        Number of states that are drawn from a torch distribution.
    n_actions
        Number of Sobol actions that are screened for the initial points of the searches for best actions; by default 64
        to 160, depending on the number of action columns.
    posterior_transform
        As in BoTorch's own acquisition functions.

    Raises
    ------
    SettingError
        If a setting is out of range.

    Examples
    --------
    >>> import torch
    >>> from botorch.models import SingleTaskGP
    >>> from conbo.integrations.botorch import ConditionalKnowledgeGradient
    >>> points = torch.tensor([[0.1, 0.2], [0.5, 0.9], [0.9, 0.4]], dtype=torch.float64)
    >>> model = SingleTaskGP(points, points.sum(-1, keepdim=True))
    >>> acquisition = ConditionalKnowledgeGradient(model, [0], points[:, :1])
    >>> acquisition(points[:, None, :]).shape
    torch.Size([3])
    """

    states: Tensor  # (m, d_s), in the unit cube
    weights: Tensor  # (m,)
    nodes: Tensor  # (n_z,)

    def __init__(
        self,
        model: Model,
        state_dims: Sequence[int],
        state_distribution: Tensor | Distribution,
        *,
        weights: Tensor | None = None,
        bounds: Tensor | None = None,
        n_z: int = 5,
        n_states: int = 16,
        n_actions: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
    ) -> None:
        super().__init__(model=model)
        if posterior_transform is None and model.num_outputs != 1:
            rule = "a model with several outputs needs a `posterior_transform`"
            raise SettingError(f"{rule}, but got none for {model.num_outputs} outputs.")
        if n_z < 3 or n_z % 2 == 0:
            raise SettingError(f"`n_z` must be odd and at least 3, so that z = 0 is a node, but got {n_z}.")
        if n_actions is not None and n_actions < 1:
            raise SettingError(f"`n_actions >= 1` must hold, but got {n_actions}.")
        if any(parameter.dtype != torch.float64 for parameter in model.parameters()):
            raise SettingError("the model must be in double precision: train it with tensors of torch.float64.")
        given = _drawn(state_distribution, n_states)
        d_s = len(state_dims)
        if given.dim() != 2 or given.shape[-1] != d_s or not len(given):
            raise SettingError(f"the states must be of shape (m, {d_s}), but got {tuple(given.shape)}.")
        box, columns = _columns(state_dims, bounds, model, given)
        self._posterior = _Posterior(model, columns, box[:, columns], posterior_transform)
        low, high = self._posterior.bounds[:, :d_s]
        states = (given - low) / (high - low)
        if not bool(((states >= 0) & (states <= 1)).all()):
            raise SettingError("the states must lie within the bounds, but some are outside.")
        self.register_buffer("states", states)
        self.register_buffer("weights", _shares(weights, given))
        self.register_buffer("nodes", quantile_nodes(n_z).to(given))
        d_x = len(columns) - d_s
        pool = sobol(n_actions or 32 + 32 * min(d_x, 4), d_x, seed=0).to(given)
        space = Space({f"s{i}": Real(0, 1) for i in range(d_s)}, {f"x{i}": Real(0, 1) for i in range(d_x)})
        gain_rule = GainRule(self.nodes, self._combine, lambda mean, slope: expected_max(mean, slope).gain)
        self._gains = BotorchGains(self._posterior, space, pool, gain_rule)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:  # noqa: N802
        """Raise UnsupportedError: pending points are not supported, as in BoTorch's analytic acquisition functions."""
        raise UnsupportedError("the conditional knowledge gradient does not account for pending points.")

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the acquisition function.

        Parameters
        ----------
        X
            Candidates (..., 1, d), in the units of the model.

        Returns
        -------
        Tensor
            Values (...), in units of the model's outcome, differentiable with respect to `X`.
        """
        candidates = self._posterior.points(X.reshape(-1, X.shape[-1]))  # (b, d)
        states = self.states.expand(len(candidates), -1, -1)
        with torch.no_grad():
            rows = torch.arange(len(candidates), device=X.device)
            # (b, m, n_z, d_x): for every node, the best action that was found for any node
            actions = self._gains.at(states)(candidates.detach(), rows).lines.actions  # type: ignore[attr-defined]
        if candidates.requires_grad:
            actions = self._differentiable(candidates, states, actions)
        lines = BotorchLines.at(self._posterior, candidates, states, actions)
        value, _ = self._combine(lines.mean, lines.slope, similarity(actions))
        return (value * self.weights).sum(-1).reshape(X.shape[:-2])

    def _combine(self, mean: Tensor, slope: Tensor, alike: Tensor) -> tuple[Tensor, Tensor]:
        gains = ConvexIntegral(self.nodes)(mean, slope, alike)
        return gains.best, gains.slope_derivative

    def _differentiable(self, candidates: Tensor, states: Tensor, actions: Tensor) -> Tensor:
        """Refine the best actions (b, m, n_z, d_x) by Newton steps, and make them differentiable in the candidates.

        There is one action for each of b candidates, m states and n_z nodes: the best one if the observation at the
        candidate is z standard deviations above its prediction, where z is the node.
        """
        with torch.enable_grad():
            for _ in range(POLISHING_STEPS):
                gradient, inverse, free = self._newton(candidates.detach(), states, actions)
                step = -(inverse @ gradient.detach()[..., None])[..., 0]
                actions = torch.where(free, actions + step, actions).clamp(0, 1).detach()
            gradient, inverse, free = self._newton(candidates, states, actions)
            moved = -(inverse @ (gradient - gradient.detach())[..., None])[..., 0]
        return actions + torch.where(free, moved, 0.0)

    def _newton(self, candidates: Tensor, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients and inverse Hessians of v with respect to actions (b, m, n_z, d_x), and a mask of free coordinates.

        There are b candidates, m states, and n_z nodes z. For each node, v is the posterior mean after an observation
        at the candidate that is z standard deviations above its prediction. A coordinate of an action is free
        unless it is at a bound and v rises beyond this bound. If a Hessian is not negative definite, its inverse is set
        to zero, so that the action does not move.
        """
        variable = actions.detach().requires_grad_(True)
        lines = BotorchLines.at(self._posterior, candidates, states, variable)
        (gradient,) = torch.autograd.grad((lines.mean + self.nodes * lines.slope).sum(), variable, create_graph=True)
        columns = [
            torch.autograd.grad(gradient[..., i].sum(), variable, retain_graph=True)[0]
            for i in range(actions.shape[-1])
        ]
        with torch.no_grad():
            low, high = variable < AT_BOUND, variable > 1 - AT_BOUND
            free = ~((low & (gradient < 0)) | (high & (gradient > 0)))
            both = free[..., :, None] & free[..., None, :]
            unit = torch.eye(actions.shape[-1], dtype=actions.dtype, device=actions.device)
            hessian = torch.where(both, torch.stack(columns, -1), -unit)
            factor, failed = torch.linalg.cholesky_ex(-hessian)
            usable = (failed == 0)[..., None, None]
            inverse = torch.where(usable, -torch.cholesky_inverse(torch.where(usable, factor, unit)), 0.0)
        return torch.where(free, gradient, 0.0), inverse, free


def _drawn(states: Tensor | Distribution, n: int) -> Tensor:
    """The given states (m, d_s), or n states (n, d_s) drawn from the distribution with a fixed seed."""
    if not isinstance(states, Distribution):
        return states.detach().to(torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = states.sample(torch.Size([n])).to(torch.float64)
    return drawn[:, None] if drawn.dim() == 1 else drawn


def _columns(state_dims: Sequence[int], bounds: Tensor | None, model: Model, like: Tensor) -> tuple[Tensor, Tensor]:
    """The bounds (2, d) of the model's d input columns, and the indices (d,) that put the columns of states first.

    The bounds are in the model's own order of columns; they are those of the unit cube if `bounds` is None.
    `state_dims` are the indices of the states' columns. Both results are on the device of the tensor `like`, and the
    bounds also have its dtype.
    """
    if bounds is None:
        seen = getattr(model, "train_inputs", None)
        if not isinstance(seen, tuple):
            raise SettingError(f"`bounds` must be given for a {type(model).__name__}, which does not say its inputs.")
        d = int(seen[0].shape[-1])
        box = torch.stack([like.new_zeros(d), like.new_ones(d)])
    else:
        box, d = bounds.to(like), bounds.shape[-1]
    if box.shape != (2, d) or not bool((box[0] < box[1]).all()):
        raise SettingError(f"`bounds` must be two rows, the first below the second, but got {bounds}.")
    own = [int(column) for column in state_dims]
    if len(set(own)) < len(own) or not all(0 <= column < d for column in own) or len(own) == d:
        raise SettingError(f"`state_dims` must name some of the columns 0 to {d - 1} once, but got {list(state_dims)}.")
    return box, torch.tensor([*own, *(column for column in range(d) if column not in own)], device=like.device)


def _shares(weights: Tensor | None, states: Tensor) -> Tensor:
    if weights is None:
        return states.new_full((len(states),), 1 / len(states))
    shares = weights.detach().to(states)
    if shares.shape != (len(states),) or not bool((shares >= 0).all()) or not float(shares.sum()) > 0:
        raise SettingError(f"`weights` must be {len(states)} numbers of at least 0, but got {weights}.")
    return shares / shares.sum()
