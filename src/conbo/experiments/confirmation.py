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
    """Add the fingerprint of new code, which has made some runs `again`, to recorded runs that it reproduces.

    Each run in `again` is compared with the recorded run of the same settings, if both were made on the same platform.
    It is skipped if several versions of the code made parts of it. The comparison also counts for another recorded run
    that differs only in its seed, if some code is known to reproduce both recorded runs (see `codes_of`). A recorded
    run is confirmed if at least one comparison counts for it, and all that count found the same scores. Then the
    fingerprints are added to its list `confirmed`.
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
    """Fingerprints of the code that is known to reproduce a run: the code that made all of it, and confirmed code."""
    made = {origin.code for origin in run.origins}
    return frozenset(made if len(made) == 1 else ()) | frozenset(run.confirmed)


def platforms_of(run: Run) -> set[str]:
    """The platforms on which a run was made; on another one, rounding errors change its scores."""
    return {origin.platform for origin in run.origins}


def is_same(run: Run, other: Run) -> bool:
    """Whether two complete runs were scored at the same checkpoints, with the same scores to all recorded digits."""
    return run.is_complete and other.is_complete and scores_of(run) == scores_of(other)


def row_of(run: Run) -> RunSettings:
    """The settings that the runs of a row share: all but the seed, which is set to 0."""
    return replace(run.settings, seed=0)


def scores_of(run: Run) -> list[Checkpoint]:
    """The checkpoints of a run without computing times."""
    return [replace(one, fit_seconds=None, suggest_seconds=None) for one in run.checkpoints]
