"""Functions that need a model: suggestions, policies, reports.

They run in separate processes, so that the service can answer other requests while a model is fitted. Arguments and
results are therefore picklable. A process keeps the studies that it has opened, with their models. Suggested trials are
also stored in the database, and fitted policies in files.
"""

import json
import pickle
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conbo.errors import SettingError, StudyError, closest
from conbo.spaces import Space
from conbo.study.on_behalf import ask_for
from conbo.study.opening import open_study
from conbo.study.study import Study
from conbo.trials import Trial

if TYPE_CHECKING:
    from conbo.plots.view import View
    from conbo.policies.policy import Policy

MAX_STUDIES = 32  # largest number of studies that a process keeps
MAX_STATES = 1000  # largest number of states in one request


def suggest(storage: str, name: str, owner: str, n: int, state: Any, lease: float, total: int | None) -> list[Trial]:
    """Suggest n trials of a study, and lease them to a client for `lease` seconds.

    The trials are leased under the name `owner`; a repeated call with the same `owner` returns the same trials. If
    `state` is not None, the trials are in this state. With a `total`, no trial is added once this many trials of the
    study are completed or leased.
    """
    return ask_for(_study(storage, name), owner, n, state, lease, total)


@dataclass(frozen=True)
class FittedPolicy:
    """The file of a policy, and the number of completed trials that it was fitted to."""

    path: str  # path of a file that only the processes of this service write and read
    evaluations: int


# by storage and study: the policy, the space at that time (choices may be added), and all trials that had ended by then
# (a study may also learn from failed ones)
_fitted: dict[tuple[str, str], tuple[FittedPolicy, Space, list[Trial]]] = {}


def fit_policy(storage: str, name: str, folder: Path, last: str) -> FittedPolicy:
    """Fit a policy to all rewards, and write it to a file.

    Parameters
    ----------
    storage, name
        The database and the name of the study.
    folder
        Folder in which the file is created.
    last
        Path of the file that the previous call wrote, or an empty string. If that call was in this process and no trial
        has ended and no choice was added since, nothing is fitted, and its result is returned again.

    Returns
    -------
    FittedPolicy
        The file, and the number of completed trials that the policy was fitted to.

    Raises
    ------
    ConboError
        If no trial is completed yet.
    """
    study = _study(storage, name)
    ended = [trial for trial in study.trials if trial.status != "running"]
    fitted, space, seen = _fitted.get((storage, name), (None, None, []))
    if fitted is not None and fitted.path == last and (space, seen) == (study.space, ended):
        return fitted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nobody would see warnings in this process
        policy = study.policy()
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".pickle", delete=False) as file:
        pickle.dump((policy.belief, policy.maximize, policy.recipe), file, protocol=pickle.HIGHEST_PROTOCOL)
    made = FittedPolicy(file.name, sum(trial.status == "completed" for trial in ended))
    _fitted[storage, name] = made, study.space, ended
    return made


def get_ready() -> None:
    """Import the modules that `answer` needs, so that its first call does not take seconds longer."""
    import_module("conbo.policies.policy")


def answer(path: str, states: Sequence[Any], extrapolate: bool) -> list[dict[str, Any]]:
    """Return the actions that the policy in a file takes in some states, with their predicted rewards.

    If `extrapolate` is True, a number out of range is replaced by the nearest one in range; otherwise it is an error.
    """
    predictions = _policy(path).predict_many(states, extrapolate=extrapolate) if states else []
    return [
        {"action": p.action, "mean": p.mean, "std": p.std}
        | ({} if p.probability is None else {"probability": p.probability})
        for p in predictions
    ]


@lru_cache(maxsize=MAX_STUDIES)
def _policy(path: str) -> "Policy":
    from conbo.policies.policy import Policy

    with Path(path).open("rb") as file:
        return Policy(*pickle.load(file))  # a file of `fit_policy`


def summarize(storage: str, name: str) -> dict[str, Any]:
    """Return the result of `Study.summary` as a dict that JSON can hold."""
    return _study(storage, name).summary().to_dict()


def plot(storage: str, name: str, kind: str) -> dict[str, Any]:
    """Return a figure as plotly's JSON; `kind` names a function of `conbo.plots`, with hyphens for underscores."""
    from conbo import plots

    kinds = [each.replace("_", "-") for each in plots.__all__ if each != "save"]
    if kind not in kinds:
        raise SettingError(f"unknown plot '{kind}': {closest(kind, kinds)}")
    figure = getattr(plots, kind.replace("-", "_"))(_view(storage, name))
    return json.loads(figure.to_json())


def report(storage: str, name: str) -> str:
    """Return the report of a study as one self-contained HTML page, as `conbo.report` writes it."""
    from conbo.reports.html import page

    return page(_view(storage, name))


def live_page(storage: str, name: str) -> str:
    """Return the report of a study as an HTML page for the dashboard; the page updates itself in the browser."""
    from conbo.reports.html import page

    return page(_view(storage, name), live=name)


def _view(storage: str, name: str) -> "View":
    from conbo.plots.view import view_of

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return view_of(_study(storage, name))


def _study(storage: str, name: str) -> Study:
    try:
        study = _opened(storage, name)
        _ = study.trials
    except StudyError:  # the study was deleted, or replaced by another one of this name
        _opened.cache_clear()
        raise
    return study


@lru_cache(maxsize=MAX_STUDIES)
def _opened(storage: str, name: str) -> Study:
    return open_study(storage, name)
