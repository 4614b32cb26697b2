"""The policy of a study on a service: every call sends an HTTP request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from conbo.prediction import Prediction
from conbo.spaces import Point, Value

PAGE = 1000  # largest number of states in one request, or of trials in one answer


class Service(Protocol):
    """What a remote policy needs from a `Client`: a method that sends a POST request."""

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]: ...


class RemotePolicy:
    """The policy of a study on a service, which `Client.policy` returns.

    Parameters
    ----------
    client
        The client of the study.
    fresh
        Whether requests wait until the service has fitted the model to all rewards.

    Examples
    --------
    >>> policy = conbo.Client("http://127.0.0.1:8080").policy()
    """

    def __init__(self, client: Service, fresh: bool) -> None:
        self._client, self._fresh = client, fresh

    def __call__(self, state: Point | None = None, *, extrapolate: bool = False) -> dict[str, Value]:
        """Choose the action for a state.

        Parameters
        ----------
        state
            The state as a dict from names to values; None in a space without states.
        extrapolate
            Whether a number out of range is replaced by the nearest one in range. If not, it raises an error.

        Returns
        -------
        dict
            The action as a dict from names to values.
        """
        return self.predict(state, extrapolate=extrapolate).action

    def many(self, states: Sequence[Point], *, extrapolate: bool = False) -> list[dict[str, Value]]:
        """Choose the actions for many states.

        Parameters
        ----------
        states
            The states, as dicts from names to values.
        extrapolate
            Whether a number out of range is replaced by the nearest one in range. If not, it raises an error.

        Returns
        -------
        list of dict
            The actions, in the order of the states.
        """
        return [prediction.action for prediction in self.predict_many(states, extrapolate=extrapolate)]

    def predict(self, state: Point | None = None, *, extrapolate: bool = False) -> Prediction:
        """Choose the action for a state, and estimate its reward.

        Parameters
        ----------
        state
            The state as a dict from names to values; None in a space without states.
        extrapolate
            Whether a number out of range is replaced by the nearest one in range. If not, it raises an error.

        Returns
        -------
        Prediction
            The action, its expected reward and the standard deviation of that estimate.
        """
        return self.predict_many([{} if state is None else state], extrapolate=extrapolate)[0]

    def predict_many(self, states: Sequence[Point], *, extrapolate: bool = False) -> list[Prediction]:
        """Choose the actions for many states, and estimate their rewards.

        Parameters
        ----------
        states
            The states, as dicts from names to values.
        extrapolate
            Whether a number out of range is replaced by the nearest one in range. If not, it raises an error.

        Returns
        -------
        list of Prediction
            One for every state, in the same order.
        """
        found: list[Prediction] = []
        for first in range(0, len(states), PAGE):
            body = {"states": list(states[first : first + PAGE]), "extrapolate": extrapolate, "fresh": self._fresh}
            found += [Prediction(**row) for row in self._client._post("/policy", body)["predictions"]]
        return found
