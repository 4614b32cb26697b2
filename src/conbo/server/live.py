"""Keeps the dashboard up to date while a study runs: sends the study's progress as events, and redraws its report."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any
from weakref import WeakKeyDictionary

from conbo.errors import ConboError
from conbo.server import model_work
from conbo.server.access import Caller, RefusedError
from conbo.server.served_study import ServedStudy
from conbo.server.service import Service
from conbo.trials import Trial

POLL_SECONDS = 1.0  # seconds between two checks of a study for changes
HEARTBEAT_SECONDS = 15.0  # a stream that has sent nothing for this many seconds sends a heartbeat
MAX_STREAMS = 200
MAX_RUNNING = 20  # largest number of running trials that are listed
PAUSE_FACTOR = 2.0  # pause before a report is redrawn, as a multiple of the time that the last one took
RETRY_SECONDS = 10.0  # shortest pause, in seconds, after a report could not be drawn

_log = logging.getLogger("conbo.server")


@dataclass
class Drawing:
    """The newest report of a study, whether a new one is being drawn, and when the next drawing may begin."""

    page: str = ""  # HTML; empty before the first report
    number: int = 0  # number of attempts to draw a report so far
    of: dict[str, Any] = field(default_factory=dict)  # the part of the study's status that the report is about
    trouble: str = ""  # why there is no report
    again: float = 0.0  # earliest time of the next report, by time.monotonic
    task: "asyncio.Task[None] | None" = None  # the drawing that is under way


class Live:
    """The reports and event streams of the studies that are open in a dashboard.

    Parameters
    ----------
    service
        Reads the studies, and draws their reports in another process.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._drawings: WeakKeyDictionary[ServedStudy, Drawing] = WeakKeyDictionary()
        self._streams = 0
        self._ending = asyncio.Event()

    def end(self) -> None:
        """End all event streams, because the service shuts down."""
        self._ending.set()

    async def drawing(self, name: str) -> Drawing:
        """Return the newest report of a study, and begin to draw another one if this one is outdated.

        A report is outdated if more trials have ended or choices were added since it was begun, or if it could not be
        drawn. Even then, the next drawing begins only after a pause, which is longer if the last drawing took longer.

        Parameters
        ----------
        name
            Name of the study.

        Returns
        -------
        Drawing
            The report; its page is empty before the first report is drawn.

        Raises
        ------
        UnknownError
            If there is no such study.
        """
        study = await self._service.study(name)
        drawing = self._drawings.setdefault(study, Drawing())
        status = await self._service.looked_at(study, study.status)
        now = {name: status[name] for name in ("completed", "failed", "states", "actions")}
        idle = drawing.task is None or drawing.task.done()
        if idle and now["completed"] and now != drawing.of and time.monotonic() >= drawing.again:
            drawing.task = asyncio.create_task(self._draw(name, drawing, now))
        return drawing

    async def _draw(self, name: str, drawing: Drawing, now: dict[str, Any]) -> None:
        began, shortest_pause = time.monotonic(), RETRY_SECONDS
        try:
            drawing.page = await self._service.draw(name, model_work.live_page)
            drawing.of, drawing.trouble, shortest_pause = now, "", 0.0
        except ConboError as error:
            drawing.trouble = self._service.without_place(str(error))
        except Exception:
            _log.exception("a report could not be drawn")
            drawing.trouble = "the report could not be drawn; the service's log says why."
        drawing.number += 1
        ended = time.monotonic()
        drawing.again = ended + max(shortest_pause, PAUSE_FACTOR * (ended - began))

    async def events(self, name: str, caller: Caller) -> AsyncIterator[str]:
        """Return a stream of server-sent events about the progress of a study.

        Parameters
        ----------
        name
            Name of the study.
        caller
            The client that follows the study. The stream ends when the client's token expires or is revoked.

        Returns
        -------
        AsyncIterator of str
            The events: `progress` with the counts of trials and a list of running trials, and `report` with two fields.
            `number` counts the attempts to draw the report so far. `trouble` is the error message of the last attempt,
            which is empty if the attempt succeeded.

        Raises
        ------
        UnknownError
            If there is no such study.
        RefusedError
            If too many streams are open.
        """
        if self._streams >= MAX_STREAMS:
            raise RefusedError(429, "there are too many open streams: try again later.", {"retry-after": "30"})
        study = await self._service.study(name)
        return self._stream(study, caller)

    async def _stream(self, study: ServedStudy, caller: Caller) -> AsyncIterator[str]:
        self._streams += 1
        shown: dict[str, Any] = {}
        said = 0.0
        try:
            while caller.is_valid() and not self._ending.is_set():
                now = await self._service.looked_at(study, progress, study)
                news = {"progress": now, "report": {"number": 0, "trouble": ""}}
                if not study.why_read_only:
                    drawing = await self.drawing(study.name)
                    news["report"] = {"number": drawing.number, "trouble": drawing.trouble}
                for kind, record in news.items():
                    if shown.get(kind) != record:
                        yield f"event: {kind}\ndata: {json.dumps(record)}\n\n"
                        said = time.monotonic()
                shown = news
                if time.monotonic() - said > HEARTBEAT_SECONDS:
                    yield ": alive\n\n"
                    said = time.monotonic()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), POLL_SECONDS)
        except ConboError as error:  # the study was deleted, or the database cannot be reached; the browser reconnects
            _log.warning("a stream has ended: %s", error)
        finally:
            self._streams -= 1


def progress(study: ServedStudy) -> dict[str, Any]:
    """Return the progress of a study as a dict: counts of trials, and which workers evaluate which trials."""
    running = [trial for trial in study.trials() if trial.status == "running"]
    workers = {trial.worker for trial in running if not trial.is_enqueued}
    return {
        **study.counts(),
        "workers": len(workers),
        "enqueued": sum(trial.is_enqueued for trial in running),
        "trials": [_running(trial) for trial in running[:MAX_RUNNING]],
        "read_only": study.why_read_only,
    }


def _running(trial: Trial) -> dict[str, Any]:
    worker = "waits for a worker" if trial.is_enqueued else (trial.worker or "").partition("/")[0].partition(":")[0]
    started = None if trial.started is None else trial.started.astimezone(UTC).timestamp()
    return {"number": trial.number, "point": trial.point, "worker": worker, "started": started}
