"""Lists the differences between two nested dicts, such as the stored and the given settings of a study."""

from collections.abc import Iterator, Mapping
from typing import Any


def differences(old: object, new: object, path: str = "") -> Iterator[str]:
    """Yield a line such as `model.members: 6 → 1` for every value that differs between two nested dicts or lists.

    `path` is the prefix of the names in these lines, such as `model`.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
    elif _named(old) and _named(new) and isinstance(old, list) and isinstance(new, list):
        if [item["name"] for item in old] == [item["name"] for item in new]:
            for one, other in zip(old, new, strict=True):
                yield from differences(one, other, f"{path}.{one['name']}")
        else:
            yield f"{path}: {_names(old)} → {_names(new)}"
    elif old != new:
        yield f"{path}: {_short(old)} → {_short(new)}"


def _named(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) and "name" in item for item in value)


def _names(parameters: list[Mapping[str, Any]]) -> str:
    return ", ".join(str(item["name"]) for item in parameters) or "none"


def _short(value: object) -> str:
    return "none" if value is None else repr(value)
