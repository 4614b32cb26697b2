"""Tells whether the compiled loops of `conbo.loops` can be used instead of torch."""

from conbo import compiler
from conbo.loops.profiles import PROFILES
from conbo.models.profiles import Profile

AVAILABLE = compiler.AVAILABLE  # whether the extra `fast` is installed; otherwise callers compute in torch


def handles(profile: Profile) -> bool:
    """Return whether compiled loops can be used: Numba must be installed, and the profile must be built in."""
    return AVAILABLE and profile.built_in and profile.name in PROFILES
