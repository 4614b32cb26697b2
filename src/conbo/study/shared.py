"""An optimizer whose trials are in a database, so that several workers can share a study."""

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from conbo.errors import StorageError
from conbo.notices import LOG
from conbo.optimizer import Optimizer
from conbo.record_fields import errors_about
from conbo.setting_conflicts import outside_range
from conbo.study.heartbeat import TURN_SECONDS, Heartbeat
from conbo.study.records import Records
from conbo.study.workers import retire
from conbo.trials import Trial

LONGEST_PAUSE = 0.2  # longest time in seconds between two attempts to take the turn to suggest


class SharedOptimizer:
    """The optimizer of a study whose trials and settings are in a database, where other workers may change them."""

    def __init__(
        self, records: Records, build: Callable[[dict[str, Any]], Optimizer], settings: dict[str, Any]
    ) -> None:
        self.records = records
        self._doubted = False  # whether the log has said that rewards are outside `reward_range`
        self._lock = threading.Lock()  # held during an update, because objectives in other threads may read the study
        self._build = build
        with errors_about(records.origin):
            self._optimizer = self._built(settings)

    def up_to_date(self) -> Optimizer:
        """The optimizer, after reading all changes to trials and settings from the database."""
        with self._lock:
            news = self.records.news()
            with errors_about(self.records.origin):
                optimizer = self._optimizer
                if news.settings is not None:
                    optimizer = self._built(news.settings)
                    optimizer.adopt(self._optimizer.trials)
                optimizer.adopt(news.trials)
            self._optimizer = optimizer
            self.records.adopted(news)
            if news.trials and optimizer.reward_range is not None and not self._doubted:
                rewards = [trial.reward for trial in optimizer.trials if trial.reward is not None]
                if doubt := outside_range(optimizer.reward_range, rewards):
                    LOG.warning("%s", doubt)
                    self._doubted = True
            return optimizer

    def _built(self, settings: dict[str, Any]) -> Optimizer:
        optimizer = self._build(settings)
        optimizer.shelf = self.records if self.records.shared else None
        return optimizer

    def add(
        self,
        choose: Callable[[Optimizer], list[Trial]],
        worker: str,
        lease: float | None = None,
        owner: str | None = None,
    ) -> list[Trial]:
        """Wait until this worker has the turn to suggest, then add the trials that `choose` returns, and return them.

        Only one worker at a time has the turn. Running trials, except enqueued ones, are assigned to the `owner`, or to
        the worker if `owner` is None. The assignment is a lease of `lease` seconds, or permanent if `lease` is None.
        """
        with Heartbeat(self.records, worker) as heartbeat:
            pause = 0.01
            while True:
                added = self.try_to_add(choose, heartbeat, lease, owner)
                if added is not None:
                    return added
                time.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(LONGEST_PAUSE, 2 * pause)

    def try_to_add(
        self,
        choose: Callable[[Optimizer], list[Trial]],
        heartbeat: Heartbeat,
        lease: float | None,
        owner: str | None = None,
    ) -> list[Trial] | None:
        """Add the trials that `choose` returns, and return them, unless another worker has the turn to suggest.

        Only one worker at a time has the turn. Return None, and add nothing, if another worker has the turn, or takes
        it over because `choose` takes too long. Running trials, except enqueued ones, are assigned to the `owner`, or
        to the worker of the heartbeat if `owner` is None. The assignment is a lease of `lease` seconds, or permanent if
        `lease` is None.
        """
        if not self.records.take_turn(heartbeat.worker, TURN_SECONDS):
            return None
        heartbeat.has_turn = True
        try:
            trials = choose(self.up_to_date())
            added = bool(trials) and self.records.add(trials, heartbeat.worker, lease, owner)
        except StorageError:
            retire(heartbeat.worker)  # the turn could not be ended, so this name counts as that of a dead worker
            raise
        except BaseException:
            self.records.end_turn(heartbeat.worker)
            raise
        finally:
            heartbeat.has_turn = False
        if added:
            optimizer = self.up_to_date()
            return [optimizer.find(trial) for trial in trials]
        self.records.end_turn(heartbeat.worker)
        return None if trials else []  # None if `choose` took so long that another worker took the turn
