"""Converts rows of the database to settings and trials, and checks their columns; a damaged row raises RecordError."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, get_args

from conbo.errors import RecordError
from conbo.former_names import with_present_names
from conbo.gaussian_process import GaussianProcess
from conbo.record_fields import LARGEST, Fields, parse_json, shown
from conbo.trials import Outcomes, Status, Trial

LARGEST_SEED = 2**4096  # no study has a larger seed
LAST_TIME = 253_402_300_799.0  # seconds since 1970 of the last second of the year 9999

_OPTIONAL = (
    # column, least value, largest value
    ("reward", -LARGEST, LARGEST),
    ("noise", 0.0, LARGEST),
    ("late", -LARGEST, LARGEST),
    ("leased_until", 0.0, LAST_TIME),
    ("started", 0.0, LAST_TIME),
    ("finished", 0.0, LAST_TIME),
)


def settings_of(text: object) -> dict[str, Any]:
    """Read the settings of a study from JSON; model settings under former names get their current names."""
    if not isinstance(text, str):
        raise RecordError(f"`settings` must be a string, but got {type(text).__name__}.")
    settings = dict(Fields.of(parse_json(text), "settings").record)
    model = settings.get("model")
    if isinstance(model, Mapping) and model.get("type") == GaussianProcess.__name__:
        today = {field.name: field.default for field in dataclasses.fields(GaussianProcess)}
        settings["model"] = with_present_names(model, today)
    return settings


def check_trial(row: Mapping[str, Any]) -> None:
    """Raise RecordError, which names the column, unless the row of a trial is valid."""
    fields = Fields(row)
    fields.whole("number")
    completed = fields.text("status", get_args(Status)) == "completed"
    if completed:
        fields.number("reward")
    for name, least, most in _OPTIONAL:
        if fields.value(name) is not None:
            fields.number(name, least, most)
    for name in ("outcomes", "worker"):
        if fields.value(name) is not None:
            fields.text(name)
    for name in ("reward", "noise", "outcomes"):
        if row[name] is not None and not completed:
            raise RecordError(f"`{name}` must not be there before the trial is completed, but got {shown(row[name])}.")
    if fields.value("leased_until") is not None and fields.value("worker") is None:
        raise RecordError("`worker` must name who has the lease of the trial, but is missing.")
    fields.text("error")
    for name in ("attempts", "lost", "change"):
        fields.whole(name)
    if fields.value("seed") is not None:
        fields.whole("seed")


def trial_of(row: Mapping[str, Any]) -> Trial:
    """The trial in a row that passed `check_trial`; the JSON of state, action and outcomes is checked here."""
    fields = Fields(row)
    points = Fields({name: parse_json(fields.text(name)) for name in ("state", "action")})
    return Trial(
        number=row["number"],
        state=points.point("state"),
        action=points.point("action"),
        status=row["status"],
        outcomes=_outcomes(row),
        error=row["error"],
        worker=row["worker"],
        leased=row["status"] == "running" and row["leased_until"] is not None,
        attempts=row["attempts"],
        started=_time(row["started"]),
        finished=_time(row["finished"]),
        late=row["late"],
        seed=row["seed"],
    )


def _outcomes(row: Mapping[str, Any]) -> Outcomes | None:
    if row["status"] != "completed":
        return None
    measured = Fields.of({} if row["outcomes"] is None else parse_json(row["outcomes"]), "outcomes")
    return Outcomes(row["reward"], row["noise"], {name: measured.number(name) for name in measured.record})


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
