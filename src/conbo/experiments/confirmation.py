"""Confirms recorded runs: if runs made again by changed code have the same scores, others need not be made again.

A row consists of the runs that differ only in their seeds. Rewriting code often changes no number. A few runs of each
row, made again by the new code, then show that the new code would make the other runs of the row as well.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from conbo.experiments.run_file import Checkpoint, Run, RunSettings


def confirm(recorded: Sequence[Run], again: Iterable[Run]) -> None:
    """Confirm recorded runs for the code that has made runs of the same rows `again`.

    A recorded run is confirmed if the runs that were made again in its row have the scores of those recorded with the
    same seeds. Only recorded runs made by the same code as these are confirmed.
    """
    known = {run.settings: run for run in recorded}
    pairs = [(known[run.settings], run) for run in again if run.settings in known]
    confirmed = {_made(old): codes_of(new) for old, new in pairs}
    for old, new in pairs:
        if not is_same(old, new):
            confirmed[_made(old)] = ()
    for run in recorded:
        codes = confirmed.get(_made(run), ())
        run.confirmed.extend(code for code in codes if code not in (*codes_of(run), *run.confirmed))


def is_same(run: Run, other: Run) -> bool:
    """Whether two complete runs were scored at the same checkpoints, with the same scores to all recorded digits."""
    return run.is_complete and other.is_complete and scores_of(run) == scores_of(other)


def row_of(run: Run) -> RunSettings:
    """The settings that the runs of a row share: all but the seed, which is set to 0."""
    return replace(run.settings, seed=0)


def scores_of(run: Run) -> list[Checkpoint]:
    """The checkpoints of a run without computing times."""
    return [replace(one, fit_seconds=None, suggest_seconds=None) for one in run.checkpoints]


def codes_of(run: Run) -> tuple[str, ...]:
    """The fingerprints of the code that made a run: several if other code continued it."""
    return tuple(origin.code for origin in run.origins)


def _made(run: Run) -> tuple[RunSettings, tuple[str, ...]]:
    return row_of(run), codes_of(run)
