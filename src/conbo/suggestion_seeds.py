"""The seeds of random generators for suggestions: pure functions of a study's seed and of the number of a trial.

Suggestions use no other randomness, so a resumed study suggests what it would have suggested without a pause.
"""

import numpy as np

# numbers of the random streams, all different
_SUGGESTION, _DESIGN = 0, 1


def suggestion_seed(seed: int, number: int) -> int:
    """Return the seed for the suggestion of the trial with this number, in a study with this seed."""
    return _stream(seed, _SUGGESTION, number)


def design_seed(seed: int) -> int:
    """Return the seed for the initial design of a study with this seed."""
    return _stream(seed, _DESIGN) % 2**31


def _stream(*numbers: int) -> int:
    """Hash a tuple of numbers to a seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
