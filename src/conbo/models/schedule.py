"""The schedule of fits: which of n rewards a fit uses, and in which blocks a Cholesky factor is built.

The time of a fit grows as n³, and one more reward hardly changes its result.  Beyond a few hundred rewards,
hyperparameters are therefore fitted to the first m of n rewards, where m grows in steps of ten percent, and the
posterior is conditioned on all n.  All functions here depend on n alone, not on earlier fits, so a resumed study makes
the same fits as one that was never interrupted.

==================  =================================================================================
number of rewards   what is done
==================  =================================================================================
up to 255           the fit uses every reward; if the number of rewards is at most 6 or one of
                    8, 10, …, 30, 33, …, it tries all models; otherwise, it tries the models that
                    were probable in the last fit that tried all, and all models only if these fail
256 to 263          the fit uses every reward, and tries all models
from 264            the fit uses the first m(n) rewards; the Cholesky factor grows in fixed blocks
m above 500         the fit uses 500 of the first m rewards, evenly spaced from the first to the last
==================  =================================================================================
"""

FIRST_LOOK = 6  # up to this number of rewards, all models are tried after each reward; then after each tenth more
LEAST_STEP = 2  # least number of rewards between two fits that try all models
EVERY_REWARD = 256  # the first m of the schedule; with fewer rewards, every fit uses all of them
STEP_SHARE = 10  # m grows by one tenth (1 / STEP_SHARE) at each step
LATE_SHARE = 32  # a step to m waits for m / LATE_SHARE more rewards, because workers may still report earlier trials
MOST_FITTED = 500  # largest number of rewards that a fit uses: more hardly change hyperparameters, but cost n³
LONG_BLOCK = 512  # rows of a block among the first m: a block takes well below a second, so that Ctrl-C is answered
SHORT_BLOCK = 32  # rows of a block beyond the first m: one more reward recomputes at most one such block


def fitted_rewards(n: int) -> int:
    """Return m: if there are n rewards, hyperparameters are fitted to the first m of them.

    If m exceeds MOST_FITTED, the fit uses only MOST_FITTED of these m rewards.
    """
    step = _steps_until(n)
    return n if step is None else step


def begins_with(n: int) -> int:
    """Return the largest m ≤ n such that a fit to m rewards tries all models.

    If m < n, a fit to n rewards tries the models that were probable in the fit to the first m, and all models only if
    these fail.
    """
    if n <= FIRST_LOOK or n >= EVERY_REWARD:
        return n
    last = step = FIRST_LOOK
    while step <= n:
        last, step = step, step + max(LEAST_STEP, step // STEP_SHARE)
    return last


def block_ends(n: int) -> list[int]:
    """Return the ends (exclusive row numbers) of the blocks of rows in which a Cholesky factor with n rows is built.

    When n grows by one, the last block becomes longer or a new one begins. The other blocks change only at those n at
    which `fitted_rewards(n)`, the number of rewards to which hyperparameters are fitted, jumps to its next value.
    """
    first = fitted_rewards(n)
    return [*range(LONG_BLOCK, first, LONG_BLOCK), *range(first, n, SHORT_BLOCK), n]


def shared_rows(a: int, b: int) -> int:
    """Return the number of rows in the leading blocks that Cholesky factors of a and of b rows have in common."""
    same = 0
    for first, second in zip(block_ends(a), block_ends(b), strict=False):
        if first != second:
            break
        same = first
    return same


def _steps_until(n: int) -> int | None:
    """Return m if hyperparameters are fitted to only the first m of n rewards; None if they are fitted to all."""
    last, step = None, EVERY_REWARD
    while step + step // LATE_SHARE <= n:
        last, step = step, step + step // STEP_SHARE
    return last
