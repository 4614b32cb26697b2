"""Confirms recorded runs after the code has changed, by making a few of them again and comparing the scores.

A row consists of the runs that differ only in their seeds. Rewriting code often changes no number. If a few runs of a
row, made again by the new code, have the same scores as before, the other runs of the row need not be made again.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from conbo.experiments.run_file import Checkpoint, Run, RunSettings


class Pair(NamedTuple):
    """A recorded run, the fingerprints of all code that is known to reproduce it, and the same run made again."""

    recorded: Run
    codes: frozenset[str]
    again: Run


def confirm(recorded: Sequence[Run], again: Iterable[Run]) -> None:
    """Add the fingerprint of new code to the recorded runs that this code reproduces.

    `again` holds runs that the new code has made again. Each is compared with the recorded run of the same settings,
    but is skipped in these cases:

    - There is no such recorded run.
    - The two runs were made on different platforms.
    - Several versions of the code made parts of the new run.

    A comparison counts for each recorded run that has the same settings, except perhaps the seed, and that shares a
    fingerprint with the recorded run of the comparison. The fingerprints of a run are those of `codes_of`.

    A recorded run is confirmed if at least one comparison counts for it, and if all comparisons that count for it found
    equal scores. The fingerprint of the new code is then added to the run's list `confirmed`.
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

    These are the fingerprint of the version that made the run, unless several versions made parts of it, and those in
    the run's list `confirmed`.
    """
    made = {origin.code for origin in run.origins}
    return frozenset(made if len(made) == 1 else ()) | frozenset(run.confirmed)


def platforms_of(run: Run) -> set[str]:
    """The platforms on which a run was made; on another one, rounding errors change its scores."""
    return {origin.platform for origin in run.origins}


def is_same(run: Run, other: Run) -> bool:
    """Whether two complete runs were scored at the same checkpoints, with the same scores to all recorded digits."""
    return run.is_complete and other.is_complete and scores_of(run) == scores_of(other)


def row_of(run: Run) -> RunSettings:
    """The settings of a run with the seed set to 0, so that they are equal for runs that differ only in the seed."""
    return replace(run.settings, seed=0)


def scores_of(run: Run) -> list[Checkpoint]:
    """The checkpoints of a run without computing times."""
    return [replace(one, fit_seconds=None, suggest_seconds=None) for one in run.checkpoints]
