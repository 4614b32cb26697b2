"""The sign of minimization: users see rewards as they are, while models and methods always maximize.

Rewards are multiplied by `sign_of` on their way in and on their way out; known limits of rewards are converted in
`reward_range`.
"""

from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["maximize", "minimize"]


def sign_of(maximize: bool) -> int:
    """The factor between a user's reward and the number that is maximized: 1, or -1 if rewards are minimized."""
    return 1 if maximize else -1
