"""Newton ascent over actions for `ActionFunctions.maximize`, by the compiled loop of `loops.ascent`.

One search takes a few microseconds, far less than torch calls would, so one call runs a whole batch of searches.  Large
batches are divided among a few threads.  The loops release the GIL and use no threads of their own, so that no second
thread pool competes with torch's.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from conbo.loops.ascent import ascend_rows, ascend_rows_within_limits
from conbo.loops.compiling import Array
from conbo.loops.profiles import coefficients
from conbo.models.feature_limits import FeatureLimits
from conbo.threads import available_threads, in_threads

WORK_PER_THREAD = 300_000  # least number of distances and products per thread: with fewer, a thread saves no time
CHUNKS_PER_THREAD = 4  # number of chunks of rows per thread: with more, threads wait less for the last one


def ascend(
    profile: str,
    points: Tensor,
    mean_weights: Tensor,
    slope_weights: Tensor,
    new_points: Tensor,
    new_weights: Tensor,
    constants: tuple[Tensor, Tensor],
    starts: Tensor,
    z: Tensor,
    box: tuple[Tensor, Tensor, Tensor],
    steps: int,
    first_radius: float,
    keep_correlation: bool,
    limits: FeatureLimits | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return local maxima over actions of the functions Σ (mean_weights + z slope_weights) κ + z new_weights κ_new.

    The sum is over the observed actions `points`, and κ is the action's correlation with one of them. κ_new is the
    action's correlation with a row of `new_points`, which has one row for each function. The arguments are the fields
    of `ActionFunctions`, its `box`, and the arguments of its `maximize`. `first_radius` is the initial radius of the
    trust region, and `constants` holds the fields `mean_constant` and `slope_constant`. The results are the fields of
    `Maxima`: the maximizers, their means, their slopes, and their correlations with `points`. The means and slopes
    include the constants. Of `limits`, only the linear constraints are respected.
    """
    rows, q, features = starts.shape
    n = len(points)
    x = np.array(starts.numpy(), order="C")
    mean, slope = np.empty((rows, q)), np.empty((rows, q))
    correlation = np.empty((rows, q, n if keep_correlation else 0))
    lower, upper, movable = box
    if limits is not None and len(limits.shapes.coefficients) == 0:  # no linear constraint, only a function
        limits = None
    # linear constraints involve all numeric columns, even those that do not move
    free = np.flatnonzero((movable if limits is None else limits.factor.box[2]).numpy())
    loop = ascend_rows if limits is None else ascend_rows_within_limits
    inputs = (
        _contiguous(mean_weights),
        _contiguous(slope_weights),
        _contiguous(new_points),
        _contiguous(new_weights),
        _contiguous(z),
        _contiguous(lower),
        _contiguous(upper),
        free,
        steps,
        first_radius,
    )
    outputs = (x, mean, slope, correlation)

    def climb(part: tuple[int, int]) -> None:
        scratch, derivatives = np.empty((features + 5, n + 1)), np.empty((2, features + 1, features))
        small = np.empty((features + 2, features))
        columns, stuck = np.empty((features, n + 1)), np.empty(features, dtype=np.bool_)
        columns[:, :n] = points.numpy().T
        scratches = scratch, derivatives, small, stuck
        within = None if limits is None else _limit_arrays(limits, movable.numpy()[free])
        loop(*part, coefficients(profile), columns, *inputs, *outputs, *scratches, within)

    work = rows * q * (n + 1) * (steps + 1) * (features + 2)  # derivatives by many features take longer
    threads = max(1, min(available_threads(), rows, work // WORK_PER_THREAD))
    chunks = 1 if threads == 1 else min(CHUNKS_PER_THREAD * threads, rows)
    bounds = np.linspace(0, rows, chunks + 1).astype(int).tolist()
    in_threads(climb, list(pairwise(bounds)), threads)
    for sums, constant in zip((mean, slope), constants, strict=True):
        sums += constant.numpy()[:, None]
    return tuple(torch.from_numpy(array) for array in outputs)  # type: ignore[return-value]


def _limit_arrays(limits: FeatureLimits, movable: Array) -> tuple[Array, ...]:
    """Return the arrays that `loops.ascent` needs to keep the f numeric columns of actions within J linear constraints.

    `movable` (f,) flags the columns that may change. The first four arrays describe the constraints, as `loops.limits`
    defines them: coefficients (J, f), room (rows, J), edges (2, J) and shapes (7, f), where `rows` counts the functions
    to maximize. The other three arrays are scratch memory.
    """
    coefficients, edges, shapes = limits.shapes.compiled
    n_limits, f = coefficients.shape
    scratch = np.empty((n_limits + f + 2, f)), np.empty(n_limits), np.empty(n_limits + 2 * f, dtype=np.bool_)
    return coefficients, _contiguous(limits.room), edges, np.vstack([shapes, movable]), *scratch


def _contiguous(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.numpy())
