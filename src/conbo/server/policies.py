"""Keeps the newest fitted policy of every study.

Policies are fitted in one process, and clients' requests for actions are answered in another, so that a fit does not
delay the answers.
"""

import asyncio
import logging
import tempfile
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from conbo.errors import ConboError
from conbo.server import model_work
from conbo.server.model_processes import ModelProcesses

PAUSE_FACTOR = 10.0  # pause before a policy is fitted again, as a multiple of the time that the last fit took
RETRY_SECONDS = 10.0  # seconds before another attempt after a failed fit

_log = logging.getLogger("conbo.server")


@dataclass
class _Newest:
    """The newest policy of a study, whether a new one is being fitted, and when the next fit may begin."""

    lock: asyncio.Lock
    fitted: "model_work.FittedPolicy | None" = None
    again: float = 0.0  # earliest time of the next fit, by time.monotonic
    task: "asyncio.Task[object] | None" = None  # the fit that is under way in the background


class Policies:
    """The newest fitted policies of all studies of a service.

    Parameters
    ----------
    storage
        An SQLite file or the URL of a database.
    fitting
        The processes that fit policies and write them to files.
    """

    def __init__(self, storage: str, fitting: ModelProcesses) -> None:
        self._storage, self._fitting = storage, fitting
        self._folder = tempfile.TemporaryDirectory(prefix="conbo-policies-", ignore_cleanup_errors=True)
        self._newest: dict[str, _Newest] = {}

    def close(self) -> None:
        """Remove the files of all policies."""
        self._folder.cleanup()

    def __contains__(self, name: object) -> bool:
        known = self._newest.get(name) if isinstance(name, str) else None
        return known is not None and known.fitted is not None

    async def newest(self, name: str, fresh: bool) -> "model_work.FittedPolicy":
        """Return the newest policy of a study.

        If there is no policy yet, or if `fresh` is True, this call waits for a policy that is fitted to all rewards.
        Otherwise it returns the last fitted policy at once, and begins a new fit in the background if the last fit was
        long enough ago.

        Parameters
        ----------
        name
            Name of the study.
        fresh
            Whether to wait for a policy that is fitted to all rewards.

        Returns
        -------
        FittedPolicy
            The file of the policy, and the number of completed trials that it was fitted to.

        Raises
        ------
        ConboError
            If no trial is completed yet.
        """
        known = self._newest.setdefault(name, _Newest(asyncio.Lock()))
        if fresh:
            return await self._fit(name, known)
        if known.fitted is None:
            async with known.lock:  # the first caller fits, the others wait
                if known.fitted is None:
                    return await self._fit_now(name, known)
            return known.fitted
        if time.monotonic() >= known.again and (known.task is None or known.task.done()):
            known.task = asyncio.create_task(self._fit_unseen(name, known))
        return known.fitted

    async def _fit(self, name: str, known: _Newest) -> "model_work.FittedPolicy":
        async with known.lock:
            return await self._fit_now(name, known)

    async def _fit_now(self, name: str, known: _Newest) -> "model_work.FittedPolicy":
        began = time.monotonic()
        last = "" if known.fitted is None else known.fitted.path
        fitted = await self._fitting.call(
            name, model_work.fit_policy, self._storage, name, Path(self._folder.name), last
        )
        ended = time.monotonic()
        known.again = ended + PAUSE_FACTOR * (ended - began)
        if known.fitted is None or fitted.path != last:
            weakref.finalize(fitted, _remove, fitted.path)  # once no request uses the policy any more
            known.fitted = fitted
        return known.fitted

    async def _fit_unseen(self, name: str, known: _Newest) -> None:
        """Fit a policy in the background; if that fails, log the error and keep the previous policy."""
        try:
            await self._fit(name, known)
            return
        except ConboError as error:
            _log.warning("a policy could not be fitted: %s", error)
        except Exception:
            _log.exception("a policy could not be fitted")
        known.again = time.monotonic() + RETRY_SECONDS


def _remove(path: str) -> None:
    with suppress(OSError):
        Path(path).unlink()
