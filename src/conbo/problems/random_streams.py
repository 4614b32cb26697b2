"""Random streams for simulators, in which the k-th draw is computed without the ones before it.

The loops of a simulator are plain Python functions with the decorator `@compiled`. With Numba (`pip install
conbo[fast]`) they become machine code. Without it, the same functions run as Python, with the same numbers,
several hundred times slower.

The k-th draw of a stream is a pure function of (seed, replication, stream number, k): the k-th output of
SplitMix64 (Steele, Lea & Flood 2014) started at a hash of the first three. Hence
  - a seed gives the same numbers however the replications are divided among threads;
  - with the same seed, simulations of two actions get the same random numbers for their k-th event, such as an
    order, whatever happened before. With these common random numbers, the difference between the two rewards is
    far less noisy than each reward.
"""

import math

import numpy as np
from numpy.typing import NDArray

from conbo.compiler import compiled_with

# SplitMix64: the step between two draws, and the multipliers and shifts that scramble them.
STEP = np.uint64(0x9E3779B97F4A7C15)
MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
SHIFT_1, SHIFT_2, SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
ONE = np.uint64(1)

# A double holds 53 bits: the upper 53 of 64 bits are used. Half a spacing is added, so that 0 and 1 never occur.
BITS_DROPPED = np.uint64(11)
SPACING = 2.0**-53

# The ziggurat method for normal draws: layers of equal area cover the normal density, and the lowest layer includes
# the tail beyond TAIL (values for 128 layers: Marsaglia & Tsang 2000).
LAYERS = 128
# the layer is chosen by bits that the uniform draw does not use, so the two are independent
LAYER_MASK = np.uint64(LAYERS - 1)
LAYER_AREA = 9.91256303526217e-3
TAIL = 3.442619855899

# Uniform draws that are reserved for one normal draw: a try takes two and fails once in a hundred, so 16 tries suffice.
DRAWS_PER_NORMAL = 32


def _layer_edges() -> NDArray[np.float64]:
    """Return the right edges of the layers into which the ziggurat method cuts the normal density.

    The lowest layer, which has the largest edge, comes first. The last entry is 0.
    """
    edges = [LAYER_AREA / math.exp(-0.5 * TAIL**2), TAIL]
    while len(edges) < LAYERS:
        top = LAYER_AREA / edges[-1] + math.exp(-0.5 * edges[-1] ** 2)
        edges.append(math.sqrt(-2.0 * math.log(top)))
    return np.array([*edges, 0.0])


LAYER_EDGE = _layer_edges()
LAYER_CORE = LAYER_EDGE[1:] / LAYER_EDGE[:-1]  # fraction of a layer's width that is entirely below the density


compiled = compiled_with()  # without Numba, functions stay as they are


@compiled
def _scramble(bits: np.uint64) -> np.uint64:
    bits = (bits ^ (bits >> SHIFT_1)) * MULTIPLIER_1
    bits = (bits ^ (bits >> SHIFT_2)) * MULTIPLIER_2
    return bits ^ (bits >> SHIFT_3)


@compiled
def _bits(key: np.uint64, index: int) -> np.uint64:
    return _scramble(key + (np.uint64(index) + ONE) * STEP)


@compiled
def _to_unit(bits: np.uint64) -> float:
    return (float(bits >> BITS_DROPPED) + 0.5) * SPACING


@compiled
def substream(key: np.uint64, number: int) -> np.uint64:
    """Return the key of substream `number` of the stream `key`.

    A seed has a substream for each replication, and a replication has one for each kind of draw, such as arrivals.
    """
    return _bits(_scramble(key), number)


@compiled
def uniform(key: np.uint64, index: int) -> float:
    """Return draw number `index` of the stream `key`: uniform on the open interval (0, 1)."""
    return _to_unit(_bits(key, index))


@compiled
def exponential(key: np.uint64, index: int) -> float:
    """Return draw number `index` of the stream `key`: exponential with mean 1."""
    return -math.log(uniform(key, index))


@compiled
def erlang(key: np.uint64, index: int, shape: int) -> float:
    """Return draw number `index` of the stream `key`: gamma with integer shape and scale 1, a sum of exponentials."""
    product = 1.0
    for part in range(shape):
        product *= uniform(key, shape * index + part)
    return -math.log(product)


@compiled
def normal(key: np.uint64, index: int) -> float:
    """Return draw number `index` of the stream `key`: standard normal, by the ziggurat method (rejection sampling)."""
    draw = DRAWS_PER_NORMAL * index
    while True:
        bits = _bits(key, draw)
        layer = np.int64(bits & LAYER_MASK)
        side = 2.0 * _to_unit(bits) - 1.0  # in (-1, 1)
        value = side * float(LAYER_EDGE[layer])
        if abs(side) < LAYER_CORE[layer]:  # entirely below the density, as in 99 of 100 cases
            return value
        if layer == 0:
            return math.copysign(_normal_tail(key, draw + 1), side)
        # Otherwise, draw a height within the layer, in units of the density at this value.
        bottom = math.exp(0.5 * (value**2 - LAYER_EDGE[layer] ** 2))
        top = math.exp(0.5 * (value**2 - LAYER_EDGE[layer + 1] ** 2))
        if bottom + (top - bottom) * uniform(key, draw + 1) < 1.0:
            return value
        draw += 2


@compiled
def _normal_tail(key: np.uint64, draw: int) -> float:
    """Return a normal draw given that it exceeds TAIL, by rejection sampling from an exponential with rate TAIL.

    It uses the draws of the stream `key` from number `draw` on.
    """
    while True:
        beyond = exponential(key, draw) / TAIL
        if 2.0 * exponential(key, draw + 1) >= beyond**2:
            return TAIL + beyond
        draw += 2
