"""The heartbeat of a worker: a thread that keeps extending the worker's turn and its leases on trials.

The turn is the right to suggest trials of a study; only one worker at a time has it. If a worker dies, its heartbeat
stops. Then its turn and its leases run out, so that other workers can continue.
"""

import logging
import threading
from types import TracebackType

from conbo.errors import StorageError
from conbo.study.records import Records

TURN_SECONDS = 30.0  # seconds of silence after which a worker that searches for the next point loses its turn

_log = logging.getLogger("conbo")


class Heartbeat:
    """Context in which a thread keeps extending a worker's leases on trials, and its turn (the right to add trials)."""

    def __init__(self, records: Records, worker: str, lease: float = TURN_SECONDS) -> None:
        self.worker, self.lease = worker, lease
        self.trials: set[int] = set()
        self.has_turn = False
        self._records = records
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="conbo heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()  # in memory, too, because other threads may ask for trials of the study
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)  # it may be waiting for a database that cannot be reached

    def _beat(self) -> None:
        used = self._records.n_transactions
        while not self._end.wait(min(self.lease, TURN_SECONDS) / 3):
            idle = self._records.n_transactions == used
            trials, turn = set(self.trials), TURN_SECONDS if self.has_turn else None
            if trials or turn is not None:
                try:
                    self._records.renew(self.worker, trials, self.lease, turn)
                except StorageError as error:
                    _log.warning("the leases of %s could not be renewed: %s", self.worker, error)
            if idle:  # during a long evaluation, free the connection, because a server has few of them
                self._records.release()
            used = self._records.n_transactions
