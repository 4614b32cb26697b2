"""Helpers for arrays of states: draws in proportion to probabilities, grids, and conversion to tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from conbo.parameters import Array

if TYPE_CHECKING:
    from torch import Tensor


def transport(u: Array, points: Array, masses: Array) -> NDArray[np.int64]:
    """For each of n uniform points `u` (n, d), choose one of m `points` (m, d); return the chosen indices (n,).

    Each of the m points is chosen in proportion to its mass in `masses` (m,). Rows of `u` that are close together
    choose points that are close together, so evenly spread rows choose evenly spread points.
    """
    d = u.shape[1]
    if d == 0:
        return np.zeros(len(u), dtype=np.int64)
    order = np.argsort(points[:, 0], kind="stable")
    edges = np.cumsum(masses[order]) / masses.sum()
    if d == 1:
        return order[np.searchsorted(edges[:-1], u[:, 0], side="right")]
    n_slices = math.ceil(len(points) ** (1 / d))
    slices = np.minimum((u[:, 0] * n_slices).astype(np.int64), n_slices - 1)
    picked = np.empty(len(u), dtype=np.int64)
    for number in np.unique(slices):
        # a point on the border belongs to both slices, each with a part of its mass
        within = np.clip(edges * n_slices - number, 0.0, 1.0)
        shares = np.diff(within, prepend=0.0)
        members, rows = order[shares > 0], slices == number
        picked[rows] = members[transport(u[rows, 1:], points[members, 1:], shares[shares > 0])]
    return picked


def array(values: Tensor) -> Array:
    """Convert a tensor on any device to an array of float64."""
    return values.detach().cpu().double().numpy()


def tensor(numbers: Array) -> Tensor:
    """Convert an array to a tensor."""
    import torch

    return torch.as_tensor(numbers)  # not from_numpy, which refuses a scalar


def tensors(listed: tuple[Array, Array] | None) -> tuple[Tensor, Tensor] | None:
    """Convert states and their probabilities from arrays to tensors; None remains None."""
    return None if listed is None else (tensor(listed[0]), tensor(listed[1]))


def inside(points: Array) -> Array:
    """Return an array (...) that is 1 for points (..., d) inside the unit cube, and 0 for the others."""
    return np.asarray(((points >= 0) & (points <= 1)).all(axis=-1), dtype=np.float64)


def grid(columns: Sequence[Array]) -> Array:
    """Return all n combinations of the entries of k columns, as rows (n, k)."""
    if not columns:
        return np.empty((1, 0))
    return np.stack([axis.ravel() for axis in np.meshgrid(*columns, indexing="ij")], axis=1)
