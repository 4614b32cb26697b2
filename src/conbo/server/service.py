"""What the service does for each kind of request. Slow work runs outside of the event loop, in threads or processes.

Arguments named `body` are the fields of the request, which `bodies.py` declares. Results are dicts that JSON can hold.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from conbo.cost_rules import with_cost
from conbo.errors import SettingError, StudyError, TrialError, shortened
from conbo.server import model_work
from conbo.server.model_processes import ModelProcesses, NewExecutor, OneProcess
from conbo.server.new_study import create_study
from conbo.server.policies import Policies
from conbo.server.questions import Questions
from conbo.server.records import (
    UnknownError,
    checked_lease,
    checked_number_of_trials,
    listed_record,
    owner_name,
    trial_record,
)
from conbo.server.served_study import ServedStudy
from conbo.study.database import Database
from conbo.study.on_behalf import fail_for, release_for, renew_for, tell_for
from conbo.study.study_list import list_studies
from conbo.trials import Outcomes, Trial

Result = TypeVar("Result")

READERS, WRITERS = 8, 8  # numbers of threads that read and write; several write, because they mostly wait for the disk
MAX_PAGE = 1000  # largest number of trials in one answer


class Service:
    """Answers the requests of many clients about the studies of one database.

    Parameters
    ----------
    storage
        An SQLite file or the URL of a database.
    new
        A function that makes executors. All work with models runs in them: suggestions, fits, predictions and figures.
        By default, each executor is a separate process.

    Raises
    ------
    StorageError
        If the database cannot be used.
    """

    def __init__(self, storage: str, new: NewExecutor = OneProcess) -> None:
        self.storage = storage
        self._database = Database(storage)
        self._database.create()
        self._studies: dict[str, ServedStudy] = {}
        self._asking: dict[str, asyncio.Lock] = {}  # by study: held while trials are suggested, one request at a time
        self._questions: dict[tuple[str, bool], Questions] = {}  # by study, and whether to extrapolate
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="conbo reader")
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="conbo writer")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        in_background = partial(new, background=True)
        self._suggesting = ModelProcesses(max(2, cores // 2), in_background)
        self._fitting = ModelProcesses(1, in_background)
        self._drawing = ModelProcesses(1, in_background)
        self._answering = ModelProcesses(1, new)  # answers for policies, apart from slow work, because clients wait
        self._policies = Policies(storage, self._fitting)

    def close(self) -> None:
        """End all threads and processes."""
        for processes in (self._suggesting, self._fitting, self._drawing, self._answering):
            processes.close()
        self._policies.close()
        for pool in (self._readers, self._writers):
            pool.shutdown(wait=False, cancel_futures=True)

    def without_place(self, text: str) -> str:
        """Return an error message without the name of the database, which clients need not know."""
        return text.replace(f" in the database {self._database.name}", "").replace(self._database.name, "the database")

    async def read(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run `work`, which reads the database, in a thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *arguments)

    async def write(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run `work`, which writes to the database, in a thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, work, *arguments)

    async def study(self, name: str) -> ServedStudy:
        """Return a study by its name; raise UnknownError if there is none."""
        if name not in self._studies:
            try:
                opened = await self.read(ServedStudy, self.storage, name)
            except StudyError as error:
                raise UnknownError("StudyError", str(error)) from error
            self._studies.setdefault(name, opened)
        return self._studies[name]

    async def looked_at(self, study: ServedStudy, look: Callable[..., Result], *arguments: Any) -> Result:
        """Run `look`, which reads a study, in a thread, and return its result.

        Raises UnknownError if the study no longer exists.
        """
        try:
            return await self.read(look, *arguments)
        except StudyError as error:
            self._studies.pop(study.name, None)
            raise UnknownError("StudyError", str(error)) from error

    async def studies(self) -> list[dict[str, Any]]:
        """Return all studies: their names, times of creation and counts of trials."""
        return [listed_record(study) for study in await self.read(list_studies, self._database)]

    async def create(self, description: dict[str, Any]) -> dict[str, Any]:
        """Create a study, or do nothing if it exists with the same settings; return its status."""
        name = await self.write(create_study, self.storage, description)
        return await self.status(name)

    async def status(self, name: str, model: bool = False) -> dict[str, Any]:
        """Return settings and progress of a study; with `model`, also the summary of what was learned."""
        study = await self.study(name)
        status = await self.looked_at(study, study.status)
        if model:
            study.writable()
            status["summary"] = await self._fitting.call(name, model_work.summarize, self.storage, name)
        return status

    async def trials(self, name: str, offset: int, limit: int, status: str | None) -> dict[str, Any]:
        """Return one page of the trials, in the order of their numbers.

        Parameters
        ----------
        name
            Name of the study.
        offset, limit
            Number of trials before the page, and largest number of trials on it.
        status
            Return only trials with this status; None stands for all trials.

        Returns
        -------
        dict
            The `trials` of the page, and the `total` number on all pages.

        Raises
        ------
        SettingError
            If `offset` or `limit` is out of range.
        UnknownError
            If there is no such study.
        """
        if offset < 0 or not 1 <= limit <= MAX_PAGE:
            rule = f"`offset >= 0` and `1 <= limit <= {MAX_PAGE}` must hold"
            raise SettingError(f"{rule}, but got offset={offset} and limit={limit}.")
        study = await self.study(name)

        def page() -> dict[str, Any]:
            wanted = [trial for trial in study.trials() if status in (None, trial.status)]
            return {"total": len(wanted), "trials": [trial_record(trial) for trial in wanted[offset : offset + limit]]}

        return await self.looked_at(study, page)

    async def trial(self, name: str, number: int) -> dict[str, Any]:
        """Return one trial; raise UnknownError if there is none with this number."""
        study = await self.study(name)
        return trial_record(await self._known(study, number))

    async def add_trial(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Enqueue a point, or add an earlier result if the body has a reward; return the new trial."""
        study = (await self.study(name)).writable()
        point = body["state"], body["action"]
        if body["reward"] is None:
            if body["noise"] is not None or body["outcomes"] is not None:
                raise SettingError("`noise` and `outcomes` must come with a `reward`, but there is none.")
            return trial_record(await self.write(study.enqueue, *point, body["seed"]))
        more = {"outcomes": body["outcomes"], "seed": body["seed"]}
        added = await self.write(lambda: study.add_trial(*point, body["reward"], body["noise"], **more))
        return trial_record(added)

    async def ask(self, name: str, body: dict[str, Any], is_gone: Callable[[], Awaitable[bool]]) -> dict[str, Any]:
        """Suggest trials and lease them to the client.

        A repeated request with the same label (`worker`) and idempotency key (`key`) gets the same trials.

        Parameters
        ----------
        name
            Name of the study.
        body
            The fields of the request.
        is_gone
            Async function that returns whether the client has closed its connection. It is called once all earlier
            requests for trials of this study have been answered.

        Returns
        -------
        dict
            The `trials`, the `worker` that they belong to, and their `lease` in seconds; empty if the client is gone.

        Raises
        ------
        SettingError, PointError
            If a field is invalid, or the state does not belong to the space.
        StudyError
            If the study has a function or method of the user's own, which the service does not have.
        """
        study = await self.study(name)
        study.writable()
        owner, lease = owner_name(body["worker"], body["key"]), checked_lease(body["lease"])
        wanted = checked_number_of_trials(body["n"])
        async with self._asking.setdefault(name, asyncio.Lock()):
            if await is_gone():  # a trial for a client that has gone would not be evaluated until its lease ends
                return {}
            arguments = self.storage, name, owner, wanted, body["state"], lease, body["evaluations"]
            trials = await self._suggesting.call(name, model_work.suggest, *arguments)
        return {"trials": [trial_record(trial) for trial in trials], "worker": owner, "lease": lease}

    async def tell(self, name: str, number: int, body: dict[str, Any]) -> dict[str, Any]:
        """Record the outcomes of a trial; return whether they count as its result (`stands`), and the trial.

        Outcomes do not count if the trial had already ended with another result, for example from another client; if
        the body has no `worker`, TrialError is raised instead. A repeated request changes nothing.
        """
        study = await self.study(name)
        told = Outcomes(body["reward"], body["noise"], with_cost(body["outcomes"], body["cost"]))
        return await self._ended(study, number, tell_for, body["worker"], told)

    async def fail(self, name: str, number: int, body: dict[str, Any]) -> dict[str, Any]:
        """Record that a trial has failed; return whether the failure counts (`stands`), and the trial.

        The failure does not count if the trial had already ended with another result, or was taken over by another
        worker or client. If the body has no `worker`, the failure counts unless the trial has a reward; then TrialError
        is raised.
        """
        study = await self.study(name)
        return await self._ended(study, number, fail_for, body["worker"], body["error"])

    async def renew(self, name: str, number: int, body: dict[str, Any]) -> dict[str, Any]:
        """Extend the lease of a trial; return the trial's number and the new lease in seconds."""
        study, lease = await self.study(name), checked_lease(body["lease"])
        await self._known(study, number)
        await self.write(renew_for, study.writable(), _owner(body["worker"]), number, lease)
        return {"number": number, "lease": lease}

    async def release(self, name: str, number: int, body: dict[str, Any]) -> dict[str, Any]:
        """Give up the lease of a trial, so that another worker or client can evaluate it; return the trial's number."""
        study = await self.study(name)
        await self._known(study, number)
        await self.write(release_for, study.writable(), _owner(body["worker"]), number)
        return {"number": number}

    async def policy(self, name: str, states: Sequence[Any], extrapolate: bool, fresh: bool) -> dict[str, Any]:
        """Return the policy's actions in some states, with their predicted rewards.

        Parameters
        ----------
        name
            Name of the study.
        states
            The states, each a mapping from names to values.
        extrapolate
            Whether a number out of range is replaced by the nearest one in range.
        fresh
            Whether to wait for a policy that is fitted to all rewards. Otherwise the newest fitted policy is used.

        Returns
        -------
        dict
            The `predictions`, one for each state, and the number of `evaluations` that the policy was fitted to.

        Raises
        ------
        PointError
            If a state does not belong to the space.
        SettingError
            If there are more than 1000 states.
        StudyError
            If the study has a function or method of the user's own, which the service does not have.
        ConboError
            If no trial is completed yet.
        """
        (await self.study(name)).writable()

        async def ask(states: Sequence[Any]) -> dict[str, Any]:
            newest = self._policies.newest(name, fresh)
            if name in self._policies:
                policy = await newest
            else:  # the process that answers starts while the first policy is fitted
                policy, _ = await asyncio.gather(newest, self._answering.call(name, model_work.get_ready))
            predictions = await self._answering.call(name, model_work.answer, policy.path, states, extrapolate)
            return {"evaluations": policy.evaluations, "predictions": predictions}

        if len(states) > model_work.MAX_STATES:
            rule = f"there must be at most {model_work.MAX_STATES} states in a request"
            raise SettingError(f"{rule}, but got {len(states)}.")
        if fresh:
            return await ask(states)
        return await self._questions.setdefault((name, extrapolate), Questions(ask)).answer(states)

    async def draw(self, name: str, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run `work`, which draws a figure or a report of the study, in the process for drawing; return its result."""
        (await self.study(name)).writable()
        return await self._drawing.call(name, work, self.storage, name, *arguments)

    async def _known(self, study: ServedStudy, number: int) -> Trial:
        try:
            return await self.looked_at(study, study.trial, number)
        except TrialError as error:
            raise UnknownError("TrialError", str(error)) from error

    async def _ended(
        self, study: ServedStudy, number: int, end: Callable[..., bool], *arguments: Any
    ) -> dict[str, Any]:
        await self._known(study, number)
        owner, *rest = arguments
        stands = await self.write(end, study.writable(), None if owner is None else _owner(owner), number, *rest)
        return {"stands": stands, "trial": trial_record(await self._known(study, number))}


def _owner(worker: Any) -> str:
    """Return the worker's name unchanged; raise SettingError unless it has the form of the names that `ask` returns."""
    if not isinstance(worker, str) or "/" not in worker or not worker.isprintable():
        raise SettingError(f"`worker` must be the one that `ask` has named, but got {shortened(repr(worker))}.")
    return worker
