"""Calls the compiled loop of rough gains (`loops.rough_gains`), for many candidates and states at once.

Rough gains are fast estimates of knowledge gradients (see `exact_rough_gains.py`). They tell which candidates deserve
an accurate computation, and in which states these matter.
"""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import rough_gains
from conbo.loops.profiles import coefficients


class CompiledReactions:
    """Computes by a compiled loop how the posterior means of m states react to one more reward.

    Each state has a best action (m, f) and k basins (m, k, f), which are local maxima of the posterior mean, all given
    as f scaled inputs. `old` (m, k, n) are the covariances of the rewards at the basins with the n observed rewards.
    `old_gradient` (m, f, n) are the gradients of the same covariances for the best actions. `whitening` (m, f, f) is
    the inverse Cholesky factor of the negated Hessian of the posterior mean at the best actions.
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
        """Return look-ahead slopes (r, m, k + 1) at the k basins, and gains from curvature (r, m).

        The last slope, that of the candidate's own action, is not filled in. Both results are explained in
        `RoughGains._reactions`. The r candidates are given by their actions (r, f) as f scaled inputs, and by the
        fields `weights` (r, n) and `sd` (r,) of their `LookAhead`. `new_scale` and `new_offset` (r, m) are A and B of
        the kernel A κ + B between the candidates' states and the m states. There are n observed rewards. `most` caps
        the gain from curvature: it is the largest gain from a line of slope one.
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
