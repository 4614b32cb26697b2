"""Finds the likely peaks of a state: the actions that are most often the best in functions drawn from the posterior."""

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.models.factorization import factorize
from conbo.models.posterior import Predicts
from conbo.models.snapping import FAR_BELOW

JITTER = 1e-6  # fraction of the mean variance that is added to the diagonal; the draws need not be accurate
ROUNDING = 1e-12  # fraction of the prior variance below which a variance counts as a rounding error


def every_action(belief: Belief, most: int) -> Tensor | None:
    """Return all actions (p, d_x) of the space if there are at most `most`; otherwise None."""
    parameters = list(belief.space.actions.values())
    count = 1
    for parameter in parameters:
        count *= parameter.n_levels or most + 1
    if count > most:
        return None
    levels = [torch.from_numpy(p.levels()).to(belief.device) for p in parameters]  # type: ignore[union-attr]
    return torch.cartesian_prod(*levels).reshape(count, len(levels))


def likely_peaks(
    posterior: Predicts, pool: Tensor, states: Tensor, normals: Tensor, n: int, feasible: Tensor | None = None
) -> Tensor:
    """Return, for each of c states (c, d_s), the n actions (c, n, d_x) of a pool that are most likely the best.

    The pool has p actions (p, d_x).  Functions are drawn from the posterior, jointly at all actions of the pool, by
    means of standard normal numbers `normals` (p, draws).  Actions that are the best in more draws come first.  Actions
    that are never the best follow, sorted by how close they come to the best value in some draw.  Actions that are not
    `feasible` (c, p) come last.
    """
    mean, covariance = joint_moments(posterior, states, pool.expand(len(states), -1, -1))
    if feasible is not None:
        mean = torch.where(feasible, mean, mean - FAR_BELOW)
    rounding = ROUNDING * posterior.prior_variance(states)[:, None]
    extra = JITTER * covariance.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True) + rounding
    covariance = covariance + torch.diag_embed(extra.expand_as(mean))
    factor, failed = factorize(covariance)
    apart = torch.diag_embed(covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt())
    factor = torch.where(failed[:, None, None], apart, factor)  # without a factor, draw independently
    draws = mean[..., None] + factor @ normals  # (c, p, draws)
    best, which = draws.max(1, keepdim=True)
    often = torch.zeros_like(mean).scatter_add(1, which[:, 0], torch.ones_like(best[:, 0]))
    return pool[(often + (draws - best).amax(-1)).topk(min(n, len(pool))).indices]


def joint_moments(posterior: Predicts, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return posterior means (c, p) and covariances (c, p, p) of p actions (c, p, d_x) in each of c states (c, d_s)."""
    c, p, _ = actions.shape
    return posterior.joint(torch.cat([states[:, None].expand(c, p, -1), actions], -1))
