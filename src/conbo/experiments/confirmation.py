"""Confirms recorded runs: if runs made again by changed code have the same scores, others need not be made again.

A row consists of the runs that differ only in their seeds. Rewriting code often changes no number. A few runs of each
row, made again by the new code, then show that the new code would make the other runs of the row as well.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from conbo.experiments.run_file import Checkpoint, Run, RunSettings


class Pair(NamedTuple):
    """A recorded run, the codes that are known to make it, and the same run made again by one code."""

    recorded: Run
    codes: frozenset[str]
    again: Run


def confirm(recorded: Sequence[Run], again: Iterable[Run]) -> None:
    """Confirm recorded runs for the code that has made runs of the same rows `again`.

    The runs that were made again are compared with those that are recorded for the same seeds, if both were made on the
    same platform. If the scores are the same, all runs of the row are confirmed that are known to be made by the same
    code as the recorded ones.
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
    """The fingerprints of code that is known to make a run: the code that made all of it, and confirmed ones."""
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
