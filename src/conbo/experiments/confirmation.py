"""Confirms recorded runs after the code has changed, by repeating a few of them and comparing the scores.

A row consists of the runs that differ only in their seeds. A change of the code often leaves all scores as they were.
If the new code repeats a few runs of a row with the same scores, the other runs of the row need not be repeated.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from conbo.experiments.run_file import Checkpoint, Run, RunSettings


class Pair(NamedTuple):
    """A recorded run, the fingerprints of all code that is known to reproduce it, and its repetition by new code."""

    recorded: Run
    codes: frozenset[str]
    again: Run


def confirm(recorded: Sequence[Run], again: Iterable[Run]) -> None:
    """Add the fingerprint of new code to the recorded runs that this code reproduces.

    `again` holds runs by the new code. Each is compared with the recorded run that has the same settings; they agree if
    both are complete and have equal scores at the same checkpoints. A run of `again` is skipped in these cases:

    - No recorded run has the same settings.
    - The two runs were made on different platforms.
    - The new run was not made by exactly one version of the code.

    A comparison counts for every recorded run that differs from the compared one at most in the seed, and that shares a
    fingerprint with it (see `codes_of`). So a recorded run without any fingerprint, because several versions of the
    code made it, is never confirmed.

    A recorded run is confirmed if at least one comparison counts for it, and the two runs agree in all that do. The
    fingerprint of the new code is then added to the run's list `confirmed`.
    """
    known = {run.settings: (run, codes_of(run)) for run in recorded}
    pairs: dict[RunSettings, list[Pair]] = defaultdict(list)
    for run in again:
        if run.settings not in known or len({origin.code for origin in run.origins}) != 1:
            continue
        if platforms_of(known[run.settings][0]) == platforms_of(run):
            pairs[row_of(run)].append(Pair(*known[run.settings], run))
    for run, codes in known.values():
        compared = [pair for pair in pairs[row_of(run)] if pair.codes & codes]
        if all(is_same(pair.recorded, pair.again) for pair in compared):
            found = {origin.code for pair in compared for origin in pair.again.origins}
            run.confirmed.extend(sorted(found - codes))


def codes_of(run: Run) -> frozenset[str]:
    """Fingerprints of all versions of the code that are known to reproduce a run.

    These are the fingerprints in the run's list `confirmed` and, if a single version made the whole run, the
    fingerprint of this version.
    """
    made = {origin.code for origin in run.origins}
    return frozenset(made if len(made) == 1 else ()) | frozenset(run.confirmed)


def platforms_of(run: Run) -> set[str]:
    """The platforms on which a run was made; on another platform, rounding errors may change its scores."""
    return {origin.platform for origin in run.origins}


def is_same(run: Run, other: Run) -> bool:
    """Whether two complete runs were scored at the same checkpoints, with the same scores to all recorded digits."""
    return run.is_complete and other.is_complete and scores_of(run) == scores_of(other)


def row_of(run: Run) -> RunSettings:
    """The settings of a run with the seed set to 0, so that they are equal for runs that differ only in the seed."""
    return replace(run.settings, seed=0)


def scores_of(run: Run) -> list[Checkpoint]:
    """The checkpoints of a run, without their computing times."""
    return [replace(one, fit_seconds=None, suggest_seconds=None) for one in run.checkpoints]
