"""The nearest points that a space allows, for tensors on any device."""

import torch
from torch import Tensor

from conbo.spaces import Space


def snap(space: Space, points: Tensor) -> Tensor:
    """The nearest points (..., d) that the space allows."""
    return torch.from_numpy(space.snap(points.cpu().numpy())).to(points)


def snap_actions(space: Space, actions: Tensor) -> Tensor:
    """The nearest actions (..., d_x) that the space allows."""
    return torch.from_numpy(space.snap_actions(actions.cpu().numpy())).to(actions)
