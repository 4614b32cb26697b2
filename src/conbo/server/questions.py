"""Answers requests for a policy's actions in batches.

Computing the actions for many states at once takes little longer than for one state.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from conbo.server.model_work import MAX_STATES

# from states to a dict with the policy's `predictions` and the number of `evaluations` that it was fitted to
Ask: TypeAlias = Callable[[Sequence[Any]], Awaitable[dict[str, Any]]]


class Questions:
    """Answers requests for the policy's actions in batches, each of which may hold the states of many clients.

    Requests that arrive while a batch is being answered wait for the next batch.

    Parameters
    ----------
    ask
        Async function that computes a batch. It takes a list of states, and returns a dict with the `predictions`, one
        for each state, and the number of `evaluations` that the policy was fitted to.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._waiting: list[tuple[Sequence[Any], asyncio.Future[dict[str, Any]]]] = []
        self._task: asyncio.Task[None] | None = None

    async def answer(self, states: Sequence[Any]) -> dict[str, Any]:
        """Return the policy's actions in some states, computed in one batch with the states of other waiting clients.

        Parameters
        ----------
        states
            The states, each a mapping from names to values.

        Returns
        -------
        dict
            The `predictions`, one for each state, and the number of `evaluations` that the policy was fitted to.

        Raises
        ------
        ConboError
            If one of these states is not valid. Invalid states of other clients have no effect.
        """
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((states, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            together = [self._waiting.pop(0)]
            while self._waiting and sum(len(s) for s, _ in together) + len(self._waiting[0][0]) <= MAX_STATES:
                together.append(self._waiting.pop(0))
            try:
                found = await self._ask([state for states, _ in together for state in states])
            except Exception:  # one of the states may be wrong, so each client's states are asked for alone
                for states, future in together:
                    await self._alone(states, future)
                continue
            rows = iter(found["predictions"])
            for states, future in together:
                if not future.done():
                    future.set_result({**found, "predictions": [next(rows) for _ in states]})
                else:  # the client has gone
                    _ = [next(rows) for _ in states]

    async def _alone(self, states: Sequence[Any], future: "asyncio.Future[dict[str, Any]]") -> None:
        try:
            found = await self._ask(states)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(found)
