"""Seeds of the random generators for suggestions, which follow from the study's seed and the trial's number alone.

Suggestions use no other randomness, so a resumed study suggests what it would have suggested without a pause.
"""

import numpy as np

# numbers of the random streams, all different
_SUGGESTION, _DESIGN = 0, 1


def suggestion_seed(seed: int, number: int) -> int:
    """Return the seed of the generator that suggests trial `number` of a study with the given seed."""
    return _stream(seed, _SUGGESTION, number)


def design_seed(seed: int) -> int:
    """Return the seed of the initial design of a study with the given seed."""
    return _stream(seed, _DESIGN) % 2**31


def _stream(*numbers: int) -> int:
    """Hash a tuple of numbers to a seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
