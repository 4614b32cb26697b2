"""What needs a model: suggestions, answers of the policy, pictures. It runs in processes of its own.

So the service answers everything else while a model is fitted. Arguments and results are plain records. A process keeps
the studies that it has seen; all that it writes goes to the database.
"""

import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from conbo.errors import SettingError, StudyError, closest
from conbo.study.on_behalf import ask_for
from conbo.study.opening import open_study
from conbo.study.study import Study
from conbo.trials import Trial

if TYPE_CHECKING:
    from conbo.plots.view import View
    from conbo.policies.policy import Policy

MAX_STUDIES = 32  # that a process keeps
MAX_STATES = 1000  # of one request
REST = 50.0  # a policy is fitted anew at the earliest after this many times as long as the last fit took


def suggest(storage: str, name: str, owner: str, n: int, state: Any, lease: float, total: int | None) -> list[Trial]:
    """Trials for the owner."""
    return ask_for(_study(storage, name), owner, n, state, lease, total)


@dataclass
class _Known:
    """A policy, the trials that it rests on, and when it may be fitted again."""

    policy: "Policy"
    ended: list[Trial]  # failures may teach, too
    again: float  # by time.monotonic


_policies: dict[tuple[str, str], _Known] = {}


def answer(storage: str, name: str, states: Sequence[Any], extrapolate: bool, fresh: bool) -> dict[str, Any]:
    """The policy's actions for states, and how many evaluations they rest on; if `fresh`, on all that there are."""
    if len(states) > MAX_STATES:
        raise SettingError(f"there must be at most {MAX_STATES} states in a request, but got {len(states)}.")
    known = _policies.get((storage, name))
    if known is None or fresh or time.monotonic() > known.again:
        known = _policies[storage, name] = _up_to_date(_study(storage, name), known)
    predictions = known.policy.predict_many(states, extrapolate=extrapolate) if states else []
    rows = [
        {"action": p.action, "mean": p.mean, "std": p.std}
        | ({} if p.probability is None else {"probability": p.probability})
        for p in predictions
    ]
    evaluations = sum(trial.status == "completed" for trial in known.ended)
    return {"evaluations": evaluations, "predictions": rows}


def _up_to_date(study: Study, known: _Known | None) -> _Known:
    ended = [trial for trial in study.trials if trial.status != "running"]
    began = time.monotonic()
    if known is not None and known.ended == ended:
        return known
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is nobody to read them here
        policy = study.policy()
    now = time.monotonic()
    return _Known(policy, ended, now + REST * (now - began))


def summarize(storage: str, name: str) -> dict[str, Any]:
    """What was learned, as `Study.summary` says it."""
    return _study(storage, name).summary().to_dict()


def plot(storage: str, name: str, kind: str) -> dict[str, Any]:
    """A picture of `conbo.plots`, as plotly's JSON."""
    from conbo import plots

    kinds = [each.replace("_", "-") for each in plots.__all__ if each != "save"]
    if kind not in kinds:
        raise SettingError(f"unknown plot '{kind}': {closest(kind, kinds)}")
    figure = getattr(plots, kind.replace("-", "_"))(_view(storage, name))
    return json.loads(figure.to_json())


def report(storage: str, name: str) -> str:
    """The self-contained page of `conbo.report`."""
    from conbo.reports.html import page

    return page(_view(storage, name))


def live_page(storage: str, name: str) -> str:
    """The same as a page of the dashboard."""
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
    except StudyError:  # it was deleted, or is another one by now
        _opened.cache_clear()
        raise
    return study


@lru_cache(maxsize=MAX_STUDIES)
def _opened(storage: str, name: str) -> Study:
    return open_study(storage, name)
