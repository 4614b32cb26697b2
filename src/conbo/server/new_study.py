"""Creates studies from the JSON that clients send; settings that are functions cannot be sent."""

from collections.abc import Mapping
from typing import Any

from conbo.errors import SettingError, StudyError
from conbo.method_list import DEFAULT_METHOD
from conbo.optimizer import Optimizer
from conbo.record_fields import Fields
from conbo.spaces import Space
from conbo.study.description import Settings, from_record
from conbo.study.study import Study

OPTIONAL = (
    "direction",
    "method",
    "state_distribution",
    "model",
    "seed",
    "initial",
    "cost",
    "reward_range",
    "common_random_numbers",
    "seeds",
    "outcome_constraints",
    "confidence",
    "failures",
)


def create_study(storage: str, description: Mapping[str, Any]) -> str:
    """Create a study; do nothing if it already exists with the same settings.

    Parameters
    ----------
    storage
        An SQLite file or the URL of a database.
    description
        Name, space and settings, from a client's JSON; settings that are left out get the library's defaults.

    Returns
    -------
    str
        Name of the study.

    Raises
    ------
    SettingError, SpaceError, RecordError
        If a setting is invalid, or would have to be a function, which JSON cannot hold.
    StudyError
        If a study of this name has other settings.
    """
    fields = Fields.of(description).only(("name", "space"), optional=OPTIONAL)
    given = {key: fields.value(key) for key in OPTIONAL if fields.has(key)}
    method = fields.text("method") if "method" in given else DEFAULT_METHOD
    try:
        usual = _usual(Space.from_dict(fields.value("space")), method)
        for key in ("model", "state_distribution"):  # parts of these settings may be left out
            if key in given:
                given[key] = {**usual[key], **fields.fields(key).record}
        settings = from_record({**usual, **given})
    except StudyError as error:
        raise SettingError(f"a study of the service must not need a function, but {error}") from error
    name = fields.text("name")
    Study(settings.space, **settings.of_optimizer(), name=name, storage=storage)
    return name


def _usual(space: Space, method: str) -> dict[str, Any]:
    """Return the default settings of a study that has this space and this method, as a dict that JSON can hold."""
    made = Optimizer(space, method=method)
    usual = Settings(space, "maximize", method, None, made.model, made.seed, made.initial, failures="learn")
    return usual.to_record()
