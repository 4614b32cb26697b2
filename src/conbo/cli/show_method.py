"""The settings of one method as text, which `conbo methods --show` and the documentation print."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from conbo.initial_design import MOST_INITIAL
from conbo.method_table import method


def settings_record(name: str) -> dict[str, Any]:
    """The settings of a built-in method as nested dicts; an object becomes a dict whose `type` is its class name."""
    found = method(name)
    return {
        "proposal": _record(found.proposal),
        "model": _record(found.model),
        "policy": "action with the highest posterior mean" if found.policy is None else _record(found.policy),
        "states_as_actions": found.states_as_actions,
        "uses_model": found.uses_model,
        "initial": f"2 d + 2 trials for d parameters, at most {MOST_INITIAL}",
        "batch": 1,
    }


def settings_lines(name: str) -> list[str]:
    """The settings of a method as indented lines `name: value`."""
    return list(_lines(settings_record(name), ""))


def _record(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        settings = {field.name: _record(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__, **settings}
    return value


def _lines(record: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield f"{indent}{name}: {value['type']}"
            yield from _lines({key: own for key, own in value.items() if key != "type"}, indent + "  ")
        else:
            yield f"{indent}{name}: {_shown(value)}"


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)
