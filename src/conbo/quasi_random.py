"""Points of the unit cube: quasi-random (scrambled Sobol) points and random points.

The Sobol points are computed by NumPy, so that the initial design of a study does not need torch, whose import takes
seconds. They equal the points of torch's `SobolEngine` bit for bit. The direction numbers are those of Joe & Kuo
(2008), as in torch. The points are scrambled by random lower triangular matrices and a random shift (Matoušek 1998).
"""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from conbo.parameters import Array

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BITS = 30  # bits per coordinate
_DIRECTIONS = Path(__file__).with_name("sobol_directions.npy")


class _Local(threading.local):
    """One random generator for each thread; reseeding it before each use is much faster than creating a new one."""

    def __init__(self) -> None:
        self.random = np.random.RandomState(0)


_LOCAL = _Local()


def sobol(n: int, d: int, seed: int) -> Tensor:
    """Return n scrambled Sobol points (n, d) of the unit cube (d >= 1) as a tensor."""
    import torch

    return torch.from_numpy(sobol_points(n, d, seed))


def sobol_points(n: int, d: int, seed: int) -> Array:
    """Return n scrambled Sobol points (n, d) of the unit cube (d >= 1) as an array."""
    directions = _directions()[:d, : max(1, (n - 1).bit_length())]  # the directions that n points need
    if d > len(directions):  # more columns than the table of direction numbers has
        return _torch_sobol(n, d, seed)
    # torch draws random bits as the lowest bits of the Mersenne Twister's numbers
    _LOCAL.random.seed(seed % 2**32)
    numbers = _LOCAL.random.randint(2**32, size=d * BITS * (1 + BITS), dtype=np.uint32)
    bits = (numbers & 1).astype(np.int64)
    powers = 1 << np.arange(BITS)
    shift = bits[: d * BITS].reshape(d, BITS) @ powers  # (d,)
    matrices = np.tril(bits[d * BITS :].reshape(d, BITS, BITS), -1) + np.eye(BITS, dtype=np.int64)
    direction_bits = directions[:, :, None] >> np.arange(BITS)[::-1] & 1  # (d, directions, bits), the highest first
    sums = direction_bits.astype(np.float64) @ matrices.transpose(0, 2, 1)  # of at most 30 bits; floats are faster
    scrambled = (sums.astype(np.int64) & 1) @ powers[::-1]  # (d, directions)
    # in the order of the Gray code, each point is the previous point xor a single direction number
    steps = np.arange(1, n)
    changed = np.frexp(steps & -steps)[1] - 1  # position of the lowest bit that is set
    integers = np.bitwise_xor.accumulate(np.vstack([shift, scrambled.T[changed]]), axis=0)
    points = integers[:n] / 2**BITS
    points[:1] = (shift / 2**BITS).astype(np.float32)  # torch rounds the first point
    return points


@lru_cache(maxsize=1)
def _directions() -> NDArray[np.int64]:
    """Load the direction numbers of the Sobol sequence: an array with a row for each dimension."""
    return np.load(_DIRECTIONS).astype(np.int64)


def _torch_sobol(n: int, d: int, seed: int) -> Array:
    import torch

    return torch.quasirandom.SobolEngine(d, scramble=True, seed=seed).draw(n, dtype=torch.float64).numpy()


def uniform(n: int, d: int, generator: torch.Generator) -> Tensor:
    """Draw independent uniform points (n, d) of the unit cube."""
    import torch

    return torch.rand(n, d, generator=generator, dtype=torch.float64, device=generator.device)
