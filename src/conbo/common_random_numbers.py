"""Common random numbers: which random seeds the trials of a study may have.

A seed is an integer that is passed to the simulator. A study may list the seeds that are allowed, for example if each
seed stands for a recorded day that the simulator replays.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, islice

from conbo.errors import SettingError, TrialError, shortened

SEED = "seed"  # name of the column in tables, and of the placeholder in commands
LARGEST_SEED = 2**63 - 1  # largest integer that databases and simulators can hold
DESIGN_SHARE = 3  # number of trials of the initial design that share a seed, to separate effects of seeds from noise


@dataclass(frozen=True)
class SeedRule:
    """The simulator seeds that trials of a study may have: those in a list, or all non-negative integers."""

    listed: tuple[int, ...] | None = None  # the list; None if all integers are allowed

    @property
    def total(self) -> int | None:
        """Number of allowed seeds; None if all non-negative integers are allowed."""
        return None if self.listed is None else len(self.listed)

    def check(self, seed: object) -> None:
        """Raise TrialError unless a trial may have this seed."""
        if not is_seed(seed):
            rule = "a trial must have a seed from 0 to 2**63 - 1, since the study has `common_random_numbers`"
            raise TrialError(f"{rule}, but got seed={shortened(repr(seed))}.")
        if self.listed is not None and seed not in self.listed:
            rule = f"a trial's seed must be one of the {self.total} that the study lists"
            raise TrialError(f"{rule}, but got seed={seed}.")

    def new(self, used: Iterable[int | None], n: int) -> list[int]:
        """Return n seeds for new trials, given the seeds `used` by earlier trials.

        Seeds that no trial has used come first, then those that were used least often.
        """
        times: dict[int | None, int] = {}
        for seed in used:
            times[seed] = times.get(seed, 0) + 1
        if self.listed is None:
            return list(islice((seed for seed in count() if seed not in times), n))
        chosen: list[int] = []
        for _ in range(n):
            # the first one if several were used equally often
            least = min(self.listed, key=lambda seed: times.get(seed, 0))
            times[least] = times.get(least, 0) + 1
            chosen.append(least)
        return chosen

    def filled(self, used: Iterable[int | None], chosen: Sequence[int | None]) -> list[int]:
        """Return the `chosen` seeds of new trials, with None and negative numbers replaced by new seeds.

        Every None becomes a new seed of its own.  A negative number is a placeholder: equal ones become the same new
        seed.  New seeds are those that no trial has used, then those that were used least often; `used` are the seeds
        of earlier trials.
        """
        new = iter(self.new([*used, *(seed for seed in chosen if seed is None or seed >= 0)], len(chosen)))
        shared: dict[int, int] = {}
        filled = []
        for seed in chosen:
            if seed is None:
                filled.append(next(new))
            elif seed < 0:
                filled.append(shared[seed] if seed in shared else shared.setdefault(seed, next(new)))
            else:
                filled.append(seed)
        return filled

    def of_design(self, numbers: Iterable[int], initial: int) -> list[int]:
        """Return the simulator seeds of trials of the initial design, given their trial `numbers`.

        `initial` is the size of the design.  Each seed is shared by a few trials of the design.
        """
        several = max(2, -(-initial // DESIGN_SHARE))
        listed = range(several) if self.listed is None else self.listed[:several]
        return [listed[number % len(listed)] for number in numbers]


def seed_rule(common_random_numbers: object, seeds: object, parameters: Iterable[str]) -> SeedRule | None:
    """Return which simulator seeds the trials of a study may have, given its settings; None if trials have no seeds.

    Raises SettingError if a setting is not valid, or if one of the space's parameters is named 'seed'.
    """
    if not isinstance(common_random_numbers, bool):
        raise SettingError(f"`common_random_numbers` must be True or False, but got {common_random_numbers!r}.")
    if seeds is None and not common_random_numbers:
        return None
    if SEED in parameters:
        rule = f"no parameter must be named '{SEED}' where the study has `common_random_numbers`"
        raise SettingError(f"{rule}, but got a space with one.")
    if seeds is None:
        return SeedRule()
    if not isinstance(seeds, Sequence) or isinstance(seeds, str) or not seeds:
        raise SettingError(f"`seeds` must be a list of whole numbers, but got {shortened(repr(seeds))}.")
    for seed in seeds:
        if not is_seed(seed):
            raise SettingError(f"`0 <= seed <= 2**63 - 1` must hold for every seed, but got {shortened(repr(seed))}.")
    listed = tuple(int(seed) for seed in seeds)  # integers of NumPy cannot be stored
    if len(set(listed)) < len(listed):
        raise SettingError("`seeds` must name every seed once, but one is there twice.")
    return SeedRule(listed)


def check_seed(rule: SeedRule | None, seed: object) -> None:
    """Raise TrialError unless a trial may have this simulator seed; if `rule` is None, the seed must be None too."""
    if rule is not None:
        rule.check(seed)
    elif seed is not None:
        wrong = "a trial must have no seed unless the study has `common_random_numbers`"
        raise TrialError(f"{wrong}, but got seed={shortened(repr(seed))}.")


def is_seed(value: object) -> bool:
    """Return whether a value can be a simulator seed: an integer from 0 to 2**63 - 1.

    Databases cannot hold larger integers. Any integer type is accepted, such as those of NumPy.
    """
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and 0 <= int(value) <= LARGEST_SEED


def new_seeds(
    rule: SeedRule | None, used: Sequence[int | None], n: int, chosen: Sequence[int | None] | None, initial: int
) -> Sequence[int | None]:
    """Return the simulator seeds of n new trials, given the seeds `used` by all earlier trials.

    If `rule` is None, trials have no seeds, so all n results are None.  If `chosen` is None, the new trials belong to
    the initial design, which has `initial` trials, and get the seeds of the design.  Otherwise, the results are the
    `chosen` seeds, in which None and negative numbers are replaced by new seeds (see `SeedRule.filled`).
    """
    if rule is None:
        return [None] * n
    if chosen is None:
        return rule.of_design(range(len(used), len(used) + n), initial)
    return rule.filled(used, chosen)
