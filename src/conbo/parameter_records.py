"""Converts the parameters of a space to JSON records and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conbo.errors import RecordError
from conbo.parameters import LARGEST_INTEGER, Categorical, Integer, Parameter, Real
from conbo.record_fields import Fields

_PARAMETERS: dict[str, type[Real] | type[Integer] | type[Categorical]] = {
    "real": Real,
    "integer": Integer,
    "categorical": Categorical,
}


def parameter_records(parameters: Mapping[str, Parameter]) -> list[dict[str, Any]]:
    """Convert parameters to a list of JSON records, in the same order.

    It is a list and not an object, because some databases reorder the keys of JSON objects.
    """
    kinds = {parameter_type: kind for kind, parameter_type in _PARAMETERS.items()}
    return [{"name": name, "type": kinds[type(p)], **_settings(p)} for name, p in parameters.items()]


def _settings(parameter: Parameter) -> dict[str, Any]:
    if isinstance(parameter, Categorical):
        return {"choices": list(parameter.choices)}
    return {"low": parameter.low, "high": parameter.high, "log": parameter.log}


def read_parameters(fields: Fields, role: str) -> dict[str, Parameter]:
    """Read the parameters of a space from its JSON record; `role` is the field, "states" or "actions".

    Raises RecordError or SpaceError if a parameter is not valid.
    """
    parameters: dict[str, Parameter] = {}
    for i, record in enumerate(fields.items(role)):
        settings = Fields.of(record, f"space.{role}[{i}]")
        name = settings.text("name")
        if name in parameters:
            raise RecordError(f"{settings.path('name')} must not be that of another parameter, but got {name!r}.")
        parameters[name] = _parameter(settings)
    return parameters


def _parameter(settings: Fields) -> Parameter:
    kind = settings.text("type", _PARAMETERS)
    if kind == "categorical":
        return Categorical(settings.only(("name", "type", "choices")).items("choices"))
    settings.only(("name", "type", "low", "high"), optional=("log",))
    log = settings.flag("log") if "log" in settings.record else False
    if kind == "real":
        return Real(settings.number("low"), settings.number("high"), log)
    low, high = (settings.whole(name, -LARGEST_INTEGER, LARGEST_INTEGER) for name in ("low", "high"))
    return Integer(low, high, log)
