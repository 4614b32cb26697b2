"""Whether the compiled loops of `conbo.loops` take the place of torch."""

from conbo import compiler
from conbo.loops.profiles import PROFILES

AVAILABLE = compiler.AVAILABLE  # the extra `fast` is installed; otherwise the callers go on in torch


def handles(profile: str) -> bool:
    """Whether there are compiled loops for a kernel of this profile."""
    return AVAILABLE and profile in PROFILES
