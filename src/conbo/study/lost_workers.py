"""Gives the trials of lost workers to other workers.

Before a worker ends, it hands back its unfinished trials (`hand_back`). If it dies without doing so, the leases on its
trials run out, because its heartbeat (`heartbeat.py`) no longer renews them. Workers on the same machine notice the
death sooner, by `workers.is_gone`. Another worker then takes the trials over (`take_over`). If too many workers are
lost while they evaluate the same trial, this trial is assumed to crash them, and is recorded as failed.
"""

from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import Connection, Row, and_, update

from conbo.study.schema import TRIALS
from conbo.study.study_rows import StudyRows
from conbo.study.workers import is_gone
from conbo.trials import LOST, Trial

MAX_LOST_WORKERS = 10  # after this many lost workers, the trial itself is assumed to crash them
HANDED_BACK = 0.0  # value of `leased_until` for a trial that anyone may take over


class LostWorkers(StudyRows):
    """Transfers stored trials of one study from lost workers to other workers."""

    def take_over(
        self,
        worker: str,
        lease: float,
        in_hand: Collection[int],
        max_lost_workers: int = MAX_LOST_WORKERS,
        enough: Callable[[Collection[int]], bool] = lambda left: False,
    ) -> Trial | None:
        """Find a trial whose lease has ended or whose worker is gone, and lease it to `worker` for `lease` seconds.

        Return the trial, or None if there is none. Trials that were enqueued or handed back count as trials whose lease
        has ended. `in_hand` holds the numbers of trials to skip, such as those that `worker` already evaluates; other
        trials that are leased to `worker` may be returned, too. If `max_lost_workers` workers were lost while
        evaluating a trial, this trial is recorded as failed and skipped. Return None, too, if `enough` returns True
        for the numbers of all trials that could be taken over, because no trial besides the others is needed.
        """

        def take(connection: Connection) -> Trial | None:
            change = self._lock(connection)
            now = self._database.now(connection)
            rows = self._left_behind(connection, worker, in_hand)  # again, because another worker may have taken some
            if enough({row.number for row in rows}):
                return None
            for row in rows:
                begun = row.started is not None
                lost = row.lost + (begun and row.leased_until != HANDED_BACK)
                if lost >= max_lost_workers:
                    error = f"{lost} {LOST}"
                    values = {"status": "failed", "error": error, "finished": now, "leased_until": None}
                    self._update(connection, row.number, change, values)
                    continue
                values = {"worker": worker, "attempts": row.attempts + begun, "lost": lost, "started": None}
                self._update(connection, row.number, change, values | {"leased_until": now + lease})
                return self._trial(connection, row.number)
            return None

        left = self.left_behind(worker, in_hand)
        return self._database.write(take, lasting=False) if left and not enough(left) else None

    def left_behind(self, worker: str, in_hand: Collection[int] = ()) -> set[int]:
        """The numbers of the trials that `worker` could take over; those in `in_hand` are skipped."""
        rows = self._database.read(lambda connection: self._left_behind(connection, worker, in_hand))
        return {row.number for row in rows}

    def _left_behind(self, connection: Connection, worker: str, in_hand: Collection[int]) -> list[Row[Any]]:
        now = self._database.now(connection)
        leased = TRIALS.c.status == "running", TRIALS.c.leased_until.is_not(None)
        rows = [row for row in self._rows(connection, *leased) if row.number not in in_hand]
        return [row for row in rows if row.leased_until < now or row.worker == worker or is_gone(row.worker)]

    def hand_back(self, worker: str, number: int | None = None) -> None:
        """End this worker's lease on the trial with this number, so that others can take the trial over.

        If `number` is None, end all leases of this worker.
        """
        these = self._leased_to(worker)
        free = update(TRIALS).where(these if number is None else and_(these, TRIALS.c.number == number))
        self._database.write(
            lambda connection: connection.execute(free.values(leased_until=HANDED_BACK)) and None, lasting=False
        )
