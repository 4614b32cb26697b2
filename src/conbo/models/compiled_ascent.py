"""The Newton ascent of `action_functions` as compiled loops: the same steps, one (row, z) at a time.

A single row is a few microseconds of work, far below the cost of the torch calls that it would take; here a batch
is one call.  Batches are cut into chunks for a few threads (the loops release the interpreter's lock), so that no
second thread pool competes with torch's.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from math import exp, inf, sqrt

import numpy as np
import torch
from torch import Tensor

from conbo.models.compiled import Array, exact, exp_of_minus, fast, inlined
from conbo.threads import available_threads

WORK_PER_THREAD = 100_000  # kernel values below which another thread costs more than it brings


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """One pool for each process: threads do not survive a fork."""
    return ThreadPoolExecutor(max_workers=available_threads())


def ascend(
    profile: str,
    points: Tensor,
    mean_weights: Tensor,
    slope_weights: Tensor,
    new_points: Tensor,
    new_weights: Tensor,
    starts: Tensor,
    z: Tensor,
    box: tuple[Tensor, Tensor, Tensor],
    steps: int,
    first_radius: float,
    keep_correlation: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Climb on Σ (mean_weights + z slope_weights) κ + z new_weights κ_new; see `ActionFunctions.maximize`."""
    rows, q, _ = starts.shape
    n = len(points)
    x = np.array(starts.numpy(), order="C")
    mean, slope = np.empty((rows, q)), np.empty((rows, q))
    correlation = np.empty((rows, q, n if keep_correlation else 0))
    lower, upper, free = box
    inputs = (
        profile == "matern52",
        np.ascontiguousarray(points.numpy().T),
        _contiguous(mean_weights),
        _contiguous(slope_weights),
        _contiguous(new_points),
        _contiguous(new_weights),
        _contiguous(z),
        lower.numpy(),
        upper.numpy(),
        np.flatnonzero(free.numpy()),
        steps,
        first_radius,
    )
    outputs = (x, mean, slope, correlation)
    work = rows * q * (n + 1) * (steps + 1)
    threads = max(1, min(available_threads(), rows, work // WORK_PER_THREAD))
    if threads == 1:
        _ascend_rows(0, rows, *inputs, *outputs)
    else:
        bounds = np.linspace(0, rows, threads + 1).astype(int)
        chunks = [
            _threads(os.getpid()).submit(_ascend_rows, int(a), int(b), *inputs, *outputs) for a, b in pairwise(bounds)
        ]
        for chunk in chunks:
            chunk.result()
    return tuple(torch.from_numpy(array) for array in outputs)  # type: ignore[return-value]


def _contiguous(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.numpy())


@fast
def _ascend_rows(
    first: int,
    last: int,
    is_matern: bool,
    points: Array,  # (features, n)
    mean_weights: Array,
    slope_weights: Array,
    new_points: Array,
    new_weights: Array,
    z: Array,
    lower: Array,
    upper: Array,
    free: Array,  # indices of the features that may move
    steps: int,
    first_radius: float,
    x: Array,  # in: starts; out: where the climb ended
    mean: Array,
    slope: Array,
    correlation: Array,
) -> None:
    features, n = points.shape
    f = len(free)
    weights, kappa, new_kappa = np.empty(n), np.empty(n), np.empty(n)
    pull, bend, whole, away = np.empty(n), np.empty(n), np.empty(n), np.empty((features, n))
    gradient, hessian = np.empty(f), np.empty((f, f))
    new_gradient, new_hessian = np.empty(f), np.empty((f, f))
    step, there, factor = np.empty(f), np.empty(features), np.empty((f, f))
    stuck = np.empty(f, dtype=np.bool_)
    for row in range(first, last):
        for j in range(z.shape[1]):
            here = x[row, j]
            own_weight = z[row, j] * new_weights[row]
            for m in range(n):
                weights[m] = mean_weights[row, m] + z[row, j] * slope_weights[row, m]
            own = _evaluate(
                is_matern, here, points, new_points[row], weights, own_weight, free, steps > 0,
                kappa, pull, bend, away, whole, gradient, hessian,
            )  # fmt: skip
            value = _dot(weights, kappa) + own_weight * own
            radius = first_radius
            for k in range(steps):
                length = _newton_step(here, gradient, hessian, lower, upper, free, radius, step, factor, stuck)
                if length < 1e-9:
                    break
                there[:] = here
                for i in range(f):
                    d = free[i]
                    there[d] = min(max(here[d] + step[i], lower[d]), upper[d])
                new_own = _evaluate(
                    is_matern, there, points, new_points[row], weights, own_weight, free, k < steps - 1,
                    new_kappa, pull, bend, away, whole, new_gradient, new_hessian,
                )  # fmt: skip
                new_value = _dot(weights, new_kappa) + own_weight * new_own
                if new_value > value:
                    value, own = new_value, new_own
                    here[:] = there
                    kappa, new_kappa = new_kappa, kappa
                    gradient[:] = new_gradient
                    hessian[:] = new_hessian
                    if length >= 0.99 * radius:
                        radius *= 2
                else:
                    radius = length / 4
            mean[row, j] = _dot(mean_weights[row], kappa)
            slope[row, j] = _dot(slope_weights[row], kappa) + new_weights[row] * own
            if correlation.shape[2] > 0:
                correlation[row, j] = kappa


@inlined
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for m in range(len(a)):
        total += a[m] * b[m]
    return total


@inlined
def _evaluate(
    is_matern: bool,
    x: Array,
    points: Array,
    new_point: Array,
    weights: Array,
    own_weight: float,
    free: Array,
    derivatives: bool,
    correlation: Array,
    pull: Array,
    bend: Array,
    away: Array,
    whole: Array,
    gradient: Array,
    hessian: Array,
) -> float:
    """Fill the correlations with the n points, and gradient and Hessian if wanted; return κ with the new point."""
    features, n = points.shape
    f = len(free)
    for m in range(n):
        correlation[m] = 0.0
    for d in range(features):
        for m in range(n):
            away[d, m] = x[d] - points[d, m]
            correlation[m] += away[d, m] * away[d, m]
    own_square = 0.0
    for d in range(features):
        own_square += (x[d] - new_point[d]) ** 2
    if is_matern:
        for m in range(n):
            pull[m] = sqrt(correlation[m])
        exp_of_minus(pull, bend, whole)
        for m in range(n):
            r, decay = pull[m], bend[m]
            correlation[m] = (1.0 + r + correlation[m] / 3.0) * decay
            pull[m] = weights[m] * (1.0 + r) * decay / 3.0
            bend[m] = weights[m] * decay / 3.0
        own_r = sqrt(own_square)
        decay = exp(-own_r)
        own, own_pull, own_bend = (1.0 + own_r + own_square / 3.0) * decay, (1.0 + own_r) * decay / 3.0, decay / 3.0
    else:
        for m in range(n):
            pull[m] = 0.5 * correlation[m]
        exp_of_minus(pull, correlation, whole)
        for m in range(n):
            pull[m] = weights[m] * correlation[m]
            bend[m] = pull[m]
        own = exp(-0.5 * own_square)
        own_pull, own_bend = own, own
    if not derivatives:
        return own
    total_pull = own_weight * own_pull
    for m in range(n):
        total_pull += pull[m]
    for i in range(f):
        p = free[i]
        own_p = x[p] - new_point[p]
        gradient[i] = -own_weight * own_pull * own_p
        total = 0.0
        for m in range(n):
            total += pull[m] * away[p, m]
            whole[m] = bend[m] * away[p, m]
        gradient[i] -= total
        for k in range(i + 1):
            q = free[k]
            total = 0.0
            for m in range(n):
                total += whole[m] * away[q, m]
            hessian[i, k] = total + own_weight * own_bend * own_p * (x[q] - new_point[q])
            hessian[k, i] = hessian[i, k]
        hessian[i, i] -= total_pull
    return own


@exact
def _newton_step(
    x: Array,
    gradient: Array,
    hessian: Array,
    lower: Array,
    upper: Array,
    free: Array,
    radius: float,
    step: Array,
    factor: Array,
    stuck: Array,
) -> float:
    """Write the step, return its length; see `action_functions.newton_step`.

    Not `fast`: vectorised sums of a few terms are slower than plain ones.
    """
    f = len(free)
    for i in range(f):
        d = free[i]
        stuck[i] = (x[d] <= lower[d] and gradient[i] < 0) or (x[d] >= upper[d] and gradient[i] > 0)
        step[i] = 0.0 if stuck[i] else gradient[i]
    if not _factorize(hessian, stuck, 0.0, factor):
        shift, largest = 0.0, 0.0
        for i in range(f):
            if stuck[i]:
                continue
            off = 0.0
            for k in range(f):
                if not stuck[k]:
                    largest = max(largest, abs(hessian[i, k]))
                    if k != i:
                        off += abs(hessian[i, k])
            shift = max(shift, off + hessian[i, i])
        if not _factorize(hessian, stuck, max(shift + 1e-3 * largest, 1e-300), factor):
            step[:] = 0.0  # the Hessian is not finite: stay
            return 0.0
    for i in range(f):
        total = step[i]
        for k in range(i):
            total -= factor[i, k] * step[k]
        step[i] = total * factor[i, i]
    for i in range(f - 1, -1, -1):
        total = step[i]
        for k in range(i + 1, f):
            total -= factor[k, i] * step[k]
        step[i] = total * factor[i, i]
    length = 0.0
    for i in range(f):
        length += step[i] * step[i]
    length = sqrt(length)
    if length > radius:
        for i in range(f):
            step[i] *= radius / length
        length = radius
    return length


@exact
def _factorize(hessian: Array, stuck: Array, shift: float, factor: Array) -> bool:
    """Lower Cholesky factor of shift - Hessian with stuck features cut out; False where there is none.

    Its diagonal is inverted: what follows only divides by it.
    """
    f = len(stuck)
    for i in range(f):
        for k in range(i + 1):
            if stuck[i] or stuck[k]:
                total = 1.0 + shift if i == k else 0.0
            else:
                total = (shift if i == k else 0.0) - hessian[i, k]
            for m in range(k):
                total -= factor[i, m] * factor[k, m]
            if i == k:
                if not 0.0 < total < inf:
                    return False
                factor[i, i] = 1.0 / sqrt(total)
            else:
                factor[i, k] = total * factor[k, k]
    return True
