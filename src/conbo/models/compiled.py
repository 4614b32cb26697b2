"""Whether the compiled loops of `conbo.loops` are used instead of torch."""

from conbo import compiler
from conbo.loops.profiles import PROFILES
from conbo.models.profiles import Profile

AVAILABLE = compiler.AVAILABLE  # the extra `fast` is installed; otherwise the callers go on in torch


def handles(profile: Profile) -> bool:
    """Whether there are compiled loops for kernels of this profile; users' own profiles are computed in torch."""
    return AVAILABLE and profile.built_in and profile.name in PROFILES
