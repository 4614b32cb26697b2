"""A study from the JSON of a client: plain settings, and nothing that would have to be run."""

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
)


def create_study(storage: str, description: Mapping[str, Any]) -> str:
    """Create a study, or resume the same; returns its name. What is left out has the library's default."""
    fields = Fields.of(description).only(("name", "space"), optional=OPTIONAL)
    given = {key: fields.value(key) for key in OPTIONAL if fields.has(key)}
    method = fields.text("method") if "method" in given else DEFAULT_METHOD
    usual = _usual(Space.from_dict(fields.value("space")), method)
    for key in ("model", "state_distribution"):  # parts of which may be left out
        if key in given:
            given[key] = {**usual[key], **fields.fields(key).record}
    try:
        settings = from_record({**usual, **given})
    except StudyError as error:
        raise SettingError(f"a study of the service must not need a function, but {error}") from error
    name = fields.text("name")
    Study(settings.space, **settings.of_optimizer(), name=name, storage=storage)
    return name


def _usual(space: Space, method: str) -> dict[str, Any]:
    """The record of a study for which nothing else is chosen."""
    made = Optimizer(space, method=method)
    return Settings(space, "maximize", method, None, made.model, made.seed, made.initial).to_record()
