"""Modes of the hyperparameters of models with actions relative to the state, in which x - W s replaces the action x.

If rewards depend on x - W s alone, apart from a term of the state s, the curvature of the posterior mean m reveals W:

    ∂²m/∂x∂s = -∂²m/∂x∂x W

Least squares over all observed points give a first estimate of W, and the share of ∂²m/∂x∂s that it explains.  Models
with relative actions are fitted only if this share is large.  Both the estimate and the search for the modes begin at
typical hyperparameters.  Those of a model without relative actions would mislead them: it explains the shift of the
best action by short lengthscales, and that is a local maximum of the density.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from conbo.models.exact import condition
from conbo.models.log_posterior import LogPosterior
from conbo.models.main_effects import MainEffectsFamily
from conbo.models.modes import Mode, best_of, local_search
from conbo.models.relative_family import RelativeFamily
from conbo.models.structures import Structures

STEP = 0.02  # step of an action, in the unit cube, in finite differences
LEAST_SHARE = 0.55  # share of ∂²m/∂x∂s that W must explain in all models before relative actions are tried
MARGIN = 4.0  # nats of evidence that relative actions must gain
MOST_WEIGHTS = 32  # largest number of entries of W, because fits with many of them take long


def with_relative_actions(structures: Structures, modes: Sequence[Mode]) -> list[Mode]:
    """Fit models with actions relative to the state, and return the modes of their hyperparameters.

    `modes` are those of the models with actions as they are. The list is empty if no model with relative actions has
    MARGIN nats more evidence than the best of these. Relative actions are not combined with heteroscedastic noise and
    input warping, and are not tried if W has no entries or more than MOST_WEIGHTS.
    """
    if not 1 <= RelativeFamily(structures.plain[0]).n_weights <= MOST_WEIGHTS:
        return []
    plain = []
    for family in structures.plain:
        own = [mode for mode in modes if mode.target.family == family and not mode.target.varies]
        plain += [best_of(own)] if own else []
    starts = [mode.target.prior.starts()[0] for mode in plain]
    estimates = [weights_by_curvature(mode.target, start) for mode, start in zip(plain, starts, strict=True)]
    if not all(share >= LEAST_SHARE for _, share in estimates):  # NaN if the mean is the same everywhere
        return []
    found: list[Mode] = []
    for mode, start, (weights, _) in zip(plain, starts, estimates, strict=True):
        found += _relative(mode, start, weights)
    for effects in structures.with_main_effects:
        found += _with_effects(effects, found)
    return found if found and best_of(found).evidence > best_of(modes).evidence + MARGIN else []


def weights_by_curvature(target: LogPosterior, parameters: Tensor) -> tuple[Tensor, float]:
    """Estimate W from the curvature of the posterior mean m, given hyperparameters (p,) of a model without W.

    Return its entries (w,) row by row, and the share of ∂²m/∂x∂s at the observed points that W explains.
    """
    mean = float(target(parameters[None])[2])
    posterior = condition(target.kernel(parameters), mean, target.noise_of(parameters), target.points, target.rewards)
    states, d_s = list(target.family.states.numeric), len(target.family.states.categories)
    actions = [d_s + column for column in target.family.actions.numeric]
    rows = []
    for column in actions:
        step = torch.zeros_like(target.points[0])
        step[column] = STEP
        up, down = (posterior.mean_and_gradient(target.points + side * step)[1] for side in (1, -1))
        rows.append((up - down) / (2 * STEP))
    curvature = torch.cat(rows)  # (d_x n, d): derivatives of ∂m/∂x, for every action at every point
    in_actions, in_states = curvature[:, actions], curvature[:, states]
    # the usual driver on a CPU, gelsy, may round differently when it is repeated
    weights = -torch.linalg.lstsq(in_actions, in_states, driver="gelsd").solution
    left = in_states + in_actions @ weights
    return weights.flatten(), 1 - float(left.square().sum() / in_states.square().sum())


def _relative(plain: Mode, start: Tensor, weights: Tensor) -> list[Mode]:
    """Fit the model of `plain` with relative actions, and return its modes.

    The search starts from the hyperparameters `start` (p,) and the entries `weights` (w,) of W.
    """
    family = RelativeFamily(plain.target.family)
    target = plain.target.of_family(family)
    return [plain.like(mode) for mode in local_search(target, family.with_weights(start, weights)[None])]


def _with_effects(effects: MainEffectsFamily, found: Sequence[Mode]) -> list[Mode]:
    """Fit a family with main effects and relative actions, and return its modes.

    The search starts from the most probable mode of the family without main effects among those that were `found`.
    """
    plain, family = RelativeFamily(effects.family), RelativeFamily(effects)
    own = [mode for mode in found if mode.target.family == plain]
    if not own:
        return []
    known = best_of(own)
    inner = effects.from_interaction(plain.without_weights(known.parameters))
    start = family.with_weights(inner, _weights(known))
    return [known.like(mode) for mode in local_search(known.target.of_family(family), start[None])]


def _weights(mode: Mode) -> Tensor:
    """Return the entries (w,) of W in a mode with relative actions."""
    family = mode.target.family
    assert isinstance(family, RelativeFamily)
    return mode.parameters[family.places]
