"""Calls the compiled loop of rough gains (`loops.rough_gains`), for many candidates and states at once.

Rough gains are fast estimates of knowledge gradients (see `exact_rough_gains.py`). They tell for which candidates, and
in which states, knowledge gradients are worth an accurate computation.
"""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import rough_gains
from conbo.loops.profiles import coefficients


class CompiledReactions:
    """Computes how the posterior means in m states change with one more reward, by a compiled loop.

    Every state has a best action and k basins, which are actions at which the posterior mean has a local maximum.

    Parameters
    ----------
    profile
        Name of the profile of actions: their correlation as a function of the distance between scaled inputs.
    basins, best
        The basins (m, k, f) and the best actions (m, f), given as f scaled inputs.
    old
        Prior covariances (m, k, n) of the rewards at the basins with the n observed rewards.
    old_gradient
        Gradients (m, f, n), with respect to the best actions, of their prior covariances with the observed rewards.
    whitening
        Inverse Cholesky factors (m, f, f) of the negated Hessians of the posterior mean at the best actions.
    """

    def __init__(
        self, profile: str, basins: Tensor, best: Tensor, old: Tensor, old_gradient: Tensor, whitening: Tensor
    ) -> None:
        self._coefficients, (m, self._k, f) = coefficients(profile), basins.shape
        self._places = np.ascontiguousarray(torch.cat([best, basins.flatten(0, 1)]).numpy().T)
        self._whitening = np.ascontiguousarray(whitening.permute(1, 2, 0).numpy())
        self._old, self._old_gradient = old.flatten(0, 1), old_gradient.transpose(0, 1).flatten(0, 1)
        self._shape = f, m

    def __call__(
        self, actions: Tensor, weights: Tensor, sd: Tensor, new_scale: Tensor, new_offset: Tensor | None, most: float
    ) -> tuple[Tensor, Tensor]:
        """Return slopes (r, m, k + 1) and gains (r, m) of m states, for one new reward at each of r candidates.

        If the reward is z standard deviations above its prediction, the posterior mean of an action becomes mean +
        slope · z. The first k slopes of a state are those at its basins (local maxima of the posterior mean). The last
        one, that of the candidate's own action, is not filled in. A gain is how much the highest mean of a state is
        expected to rise because the best action moves with z, to second order in z. It is capped at `most` · |A| / sd,
        where A is `new_scale`.

        Parameters
        ----------
        actions
            The candidates' actions (r, f), given as f scaled inputs.
        weights, sd
            The candidates' fields of `LookAhead`: weights (r, n) of n observed rewards, and standard deviations (r,).
        new_scale, new_offset
            A and B (r, m) between each candidate's state and the m states. The kernel is A κ + B, where κ is the
            correlation of actions. B is None if the kernel has no such term.
        most
            The largest expected gain from an action with slope 1: about E[max(Z, 0)], where Z is standard normal.
        """
        r, (f, m), k = len(actions), self._shape, self._k
        old = (weights @ self._old.mT).numpy()
        if new_offset is not None:
            old.reshape(r, m, k)[:] -= new_offset.numpy()[..., None]
        slopes, gain, scratch = np.empty((r, m, k + 1)), np.empty((r, m)), np.empty((3, m + m * k))
        rough_gains.reactions(
            self._coefficients,
            np.ascontiguousarray(actions.numpy()),
            self._places,
            self._whitening,
            np.ascontiguousarray(new_scale.numpy()),
            np.ascontiguousarray(sd.numpy()),
            old,
            (weights @ self._old_gradient.mT).numpy().reshape(r, f, m),
            most,
            slopes,
            gain,
            scratch,
        )
        return torch.from_numpy(slopes), torch.from_numpy(gain)
