"""The sign of rewards: models and methods always maximize, so rewards to be minimized are negated.

Rewards are multiplied by `sign_of` before they reach a model, and again before the user sees them. Known limits of the
expected reward are converted in `reward_range.py`.
"""

from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["maximize", "minimize"]


def sign_of(maximize: bool) -> int:
    """Return 1 if rewards are maximized, or -1, by which rewards to be minimized are multiplied."""
    return 1 if maximize else -1
