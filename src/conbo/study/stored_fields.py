"""What the rows of a database must be, column by column: whatever wrote them, a damaged one is refused."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, get_args

from conbo.errors import RecordError
from conbo.record_fields import LARGEST, Fields, parse_json
from conbo.trials import Status, Trial

LAST_TIME = 253_402_300_799.0  # seconds since 1970 of the last second of the year 9999

_OPTIONAL = (
    # column, least, most
    ("reward", -LARGEST, LARGEST),
    ("noise", 0.0, LARGEST),
    ("late", -LARGEST, LARGEST),
    ("leased_until", 0.0, LAST_TIME),
    ("started", 0.0, LAST_TIME),
    ("finished", 0.0, LAST_TIME),
)


def settings_of(text: object) -> dict[str, Any]:
    """The settings of a study, from their JSON."""
    if not isinstance(text, str):
        raise RecordError(f"`settings` must be a text, but got {type(text).__name__}.")
    return dict(Fields.of(parse_json(text), "settings").record)


def check_trial(row: Mapping[str, Any]) -> None:
    """Raise RecordError, which names the column, unless the row of a trial is a valid one."""
    fields = Fields(row)
    fields.whole("number")
    completed = fields.text("status", get_args(Status)) == "completed"
    if completed:
        fields.number("reward")
    for name, least, most in _OPTIONAL:
        if fields.value(name) is not None:
            fields.number(name, least, most)
            if name in ("reward", "noise") and not completed:
                raise RecordError(f"`{name}` must not be there before the trial is completed, but got {row[name]!r}.")
    if fields.value("worker") is not None:
        fields.text("worker")
    fields.text("error")
    for name in ("attempts", "lost", "change"):
        fields.whole(name)


def trial_of(row: Mapping[str, Any]) -> Trial:
    """The trial of a row that `check_trial` has passed; the points are checked here."""
    fields = Fields(row)
    points = Fields({name: parse_json(fields.text(name)) for name in ("state", "action")})
    return Trial(
        number=row["number"],
        state=points.point("state"),
        action=points.point("action"),
        status=row["status"],
        reward=row["reward"],
        noise=row["noise"],
        error=row["error"],
        worker=row["worker"],
        leased=row["status"] == "running" and row["leased_until"] is not None,
        attempts=row["attempts"],
        started=_time(row["started"]),
        finished=_time(row["finished"]),
        late=row["late"],
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
