"""Covariances of `ProductKernel` between few points, and gradients of their sums, as compiled loops.

A climb asks for them at a handful of candidates at a time: some microseconds of arithmetic, far below the cost of
the torch calls that it would take.  Both factors of a pair of points share one exponential: each is a polynomial
in their scaled distance r times e^-r (Matérn) or e^(-r²/2) (squared exponential).
"""

from math import prod, sqrt

import numpy as np
import torch
from torch import Tensor

from conbo.models import compiled
from conbo.models.compiled import Array, exp_of_minus, fast, inlined
from conbo.models.profiles import Profile

Features = tuple[Tensor, Tensor]  # scaled, of states and of actions


def handles(profiles: tuple[Profile, Profile], *tensors: Tensor) -> bool:
    """Whether there are compiled loops for factors of these profiles and for these tensors."""
    return all(compiled.handles(profile) for profile in profiles) and all(
        tensor.device.type == "cpu" and not tensor.requires_grad for tensor in tensors
    )


def covariance(profiles: tuple[str, str], outputscale: float, a: Features, b: Features) -> Tensor:
    """k (p, m) between points with features (p, ·) and (m, ·)."""
    result = np.empty((len(a[0]), len(b[0])))
    _covariance(_materns(profiles), outputscale, _rows(a), _partners(b), result)
    return torch.from_numpy(result)


def weighted_gradient(
    profiles: tuple[str, str], outputscale: float, here: Features, there: Features, weights: Tensor
) -> Features:
    """Gradient in the features of each point of Σ_m weights[..., p, m] k(point p, there m): two of (..., p, ·).

    `here` holds features (p, ·); `there` (m, ·), or (p, m, ·) where every point has partners of its own.
    """
    *lead, p, m = weights.shape
    batches = np.ascontiguousarray(weights.reshape(prod(lead), p, m).numpy())
    in_states, in_actions = (np.empty((len(batches), *block.shape)) for block in here)
    _weighted_gradient(_materns(profiles), outputscale, _rows(here), _partners(there), batches, in_states, in_actions)
    states, actions = (torch.from_numpy(block.reshape(*lead, *block.shape[1:])) for block in (in_states, in_actions))
    return states, actions


def _materns(profiles: tuple[str, str]) -> tuple[bool, bool]:
    return profiles[0] == "matern52", profiles[1] == "matern52"


def _rows(features: Features) -> tuple[Array, Array]:
    states, actions = (np.ascontiguousarray(block.numpy()) for block in features)
    return states, actions


def _partners(features: Features) -> tuple[Array, Array]:
    """Transposed, (1, ·, m) or (p, ·, m): the innermost loops run over partners."""
    states, actions = (np.ascontiguousarray(block.mT.numpy()) for block in features)
    return (states, actions) if states.ndim == 3 else (states[None], actions[None])


@fast
def _covariance(
    materns: tuple[bool, bool],
    outputscale: float,
    here: tuple[Array, Array],
    there: tuple[Array, Array],
    result: Array,
) -> None:
    (states, actions), (other_states, other_actions), m = here, there, result.shape[1]
    of_states, of_actions = np.empty(m), np.empty(m)
    exponent, decay, unused = np.empty(m), np.empty(m), np.empty(m)
    for p in range(len(result)):
        exponent[:] = 0.0
        _polynomials(materns[0], states[p], other_states[0], exponent, of_states, unused)
        _polynomials(materns[1], actions[p], other_actions[0], exponent, of_actions, unused)
        exp_of_minus(exponent, decay, unused)
        for j in range(m):
            result[p, j] = outputscale * decay[j] * of_states[j] * of_actions[j]


@fast
def _weighted_gradient(
    materns: tuple[bool, bool],
    outputscale: float,
    here: tuple[Array, Array],
    there: tuple[Array, Array],
    weights: Array,
    in_states: Array,
    in_actions: Array,
) -> None:
    (states, actions), (other_states, other_actions), m = here, there, weights.shape[2]
    state_value, action_value, state_slope, action_slope = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    exponent, decay, pull = np.empty(m), np.empty(m), np.empty(m)
    for p in range(len(states)):
        own = p if len(other_states) > 1 else 0
        exponent[:] = 0.0
        _polynomials(materns[0], states[p], other_states[own], exponent, state_value, state_slope)
        _polynomials(materns[1], actions[p], other_actions[own], exponent, action_value, action_slope)
        exp_of_minus(exponent, decay, pull)
        for j in range(m):
            state_slope[j] *= outputscale * decay[j] * action_value[j]
            action_slope[j] *= outputscale * decay[j] * state_value[j]
        for batch in range(len(weights)):
            _pull(weights[batch, p], state_slope, states[p], other_states[own], pull, in_states[batch, p])
            _pull(weights[batch, p], action_slope, actions[p], other_actions[own], pull, in_actions[batch, p])


@inlined
def _polynomials(is_matern: bool, here: Array, there: Array, exponent: Array, value: Array, slope: Array) -> None:
    """φ and ψ of `kernels.PROFILES` without their exponential e^-exponent, which is added to."""
    m = there.shape[1]
    value[:] = 0.0
    for d in range(len(here)):
        for j in range(m):
            value[j] += (here[d] - there[d, j]) ** 2
    if is_matern:
        for j in range(m):
            r = sqrt(value[j])
            exponent[j] += r
            value[j] = 1.0 + r + value[j] / 3.0
            slope[j] = (1.0 + r) / 3.0
    else:
        for j in range(m):
            exponent[j] += 0.5 * value[j]
            value[j] = 1.0
            slope[j] = 1.0


@inlined
def _pull(weights: Array, slope: Array, here: Array, there: Array, pull: Array, result: Array) -> None:
    """Σ_j weight_j slope_j (there_j - here) for every feature."""
    for j in range(len(pull)):
        pull[j] = weights[j] * slope[j]
    for d in range(len(here)):
        total = 0.0
        for j in range(len(pull)):
            total += pull[j] * (there[d, j] - here[d])
        result[d] = total
