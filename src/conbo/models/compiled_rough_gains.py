"""How the basins of `exact_rough_gains` react to candidates, by one compiled loop over candidates and states."""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import rough_gains
from conbo.loops.profiles import coefficients


def reactions(
    profile: str,
    actions: Tensor,
    basins: Tensor,
    best: Tensor,
    whitening: Tensor,
    new_scale: Tensor,
    sd: Tensor,
    old: Tensor,
    old_gradients: Tensor,
) -> tuple[Tensor, Tensor]:
    """Slopes (r, m, k) of the basins' lines, and half of V''(0) (r, m); see `RoughGains`."""
    slopes, curvature = np.empty(old.shape), np.empty(new_scale.shape)
    scratch = np.empty((5, max(basins.shape[:2].numel(), basins.shape[-1])))
    inputs = (
        actions,
        basins.flatten(0, 1).mT,
        best.mT,
        whitening,
        new_scale,
        sd,
        old.flatten(1),
        old_gradients.flatten(1),
    )
    arrays = (np.ascontiguousarray(tensor.numpy()) for tensor in inputs)
    rough_gains.reactions(coefficients(profile), *arrays, slopes, curvature, scratch, scratch.view(np.int64))
    return torch.from_numpy(slopes), torch.from_numpy(curvature)
