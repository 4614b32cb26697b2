"""The sign of rewards: models and methods always maximize, so rewards to be minimized are negated.

Rewards are multiplied by the result of `sign_of` before they reach a model, and again before the user sees them. Known
limits of the expected reward are converted in `reward_range.py`.
"""

from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["maximize", "minimize"]


def sign_of(maximize: bool) -> int:
    """Return the factor that turns rewards into numbers to maximize: 1, or -1 if rewards are minimized."""
    return 1 if maximize else -1
