"""The schedule of fits: which rewards a fit uses, and in which blocks a factor is built. Pure functions of n.

A fit costs n³, and its result hardly changes with one more reward. So beyond a few hundred rewards, hyperparameters are
fitted to the first m of n rewards, where m grows in steps of ten percent, and the posterior is conditioned on all n.
Nothing depends on earlier fits, so a resumed study gets the same numbers.

==================  =================================================================================
number of rewards   what is done
==================  =================================================================================
up to 263           the fit uses every reward, and the factor is made in one step; models that were
                    improbable at the last of 6, 8, 10, …, 30, 33, … rewards are not tried again
from 264            the fit uses the first m(n) rewards; the factor gains rows in fixed blocks
m above 750         the fit uses 750 of the first m rewards, evenly spaced from the first to the last
==================  =================================================================================
"""

FIRST_LOOK = 6  # number of rewards up to which all models are tried after each; then after a tenth more each time
LEAST_STEP = 2  # least number of rewards between two such trials
EVERY_REWARD = 256  # number of rewards at the first step of the schedule; below it, every fit uses all rewards
STEP_SHARE = 10  # each step adds one tenth to the number of rewards
LATE_SHARE = 32  # a step waits for the newest 1/32 of the trials: with several workers, their order may still change
MOST_FITTED = 750  # largest number of rewards that a fit uses: more hardly change hyperparameters, but cost n³
LONG_BLOCK = 512  # rows of a block of the factor: it takes well below a second, so that Ctrl-C is answered
SHORT_BLOCK = 32  # rows of a block beyond the last step: one more reward computes at most one such block


def fitted_rewards(n: int) -> int:
    """How many rewards, the first of n, a fit may use."""
    step = _steps_until(n)
    return n if step is None else step


def begins_with(n: int) -> int:
    """The number of rewards, at most n, at which all models were last tried; only the probable ones are fitted to n."""
    if n <= FIRST_LOOK or n >= EVERY_REWARD:
        return n
    last = step = FIRST_LOOK
    while step <= n:
        last, step = step, step + max(LEAST_STEP, step // STEP_SHARE)
    return last


def block_ends(n: int) -> list[int]:
    """The rows where blocks of a factor of n rows end; a new row changes only the last block until the next step."""
    first = fitted_rewards(n)
    return [*range(LONG_BLOCK, first, LONG_BLOCK), *range(first, n, SHORT_BLOCK), n]


def shared_rows(a: int, b: int) -> int:
    """Number of rows in the blocks that a factor of a rows and a factor of b rows have in common."""
    same = 0
    for first, second in zip(block_ends(a), block_ends(b), strict=False):
        if first != second:
            break
        same = first
    return same


def _steps_until(n: int) -> int | None:
    """The last step of the schedule that n rewards reach, or None before the first."""
    last, step = None, EVERY_REWARD
    while step + step // LATE_SHARE <= n:
        last, step = step, step + step // STEP_SHARE
    return last
