"""Damage of every kind to files and records, drawn from a seeded generator."""

import copy
import random
from collections.abc import Iterator
from typing import Any

ODD_TEXTS = [
    *(b"NaN", b"Infinity", b"-1", b"0", b"1e999", b"1e308", b"-1e308", b"5e-324", b"1_0", b"null", b"true", b'""'),
    *(b"[]", b"{}", b"[[", b'"', b"'", b",", b":", b"\n", b"\r\n", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"\\ud800", b"9" * 400, b"9" * 5000, b"[" * 3000, b"=", b"#", b"_", b" ", b"\t", b";"),
]
ODD_VALUES: list[Any] = [
    *(None, True, False, "", "x", "real", "nan", "\0", "\ud800", -1, 0, 1, 2, 1.5, 10**9, 10**30, 10**400, -(10**400)),
    *(1e308, -1e308, 1e-308, 5e-324, 1e-9, 1e9, [], {}, [[]], [None], [0.5], [1, 2, 3], {"type": "real"}, {"": 1}),
]


def damaged_bytes(generator: random.Random, data: bytes) -> bytes:
    """The bytes with one to three places damaged."""
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        data = _damaged_once(generator, data)
    return data


def _damaged_once(generator: random.Random, data: bytes) -> bytes:
    start = generator.randrange(len(data) + 1)
    end = min(len(data), start + generator.choice((1, 1, 2, 4, 16, 256)))
    kind = generator.randrange(8)
    if kind == 0 and data:  # one bit
        place = min(start, len(data) - 1)
        return data[:place] + bytes([data[place] ^ (1 << generator.randrange(8))]) + data[place + 1 :]
    if kind == 1:  # lost
        return data[:start] + data[end:]
    if kind == 2:  # there twice
        return data[:end] + data[start:end] + data[end:]
    if kind == 3:  # cut off
        return data[:start]
    if kind == 4:  # noise
        return data[:start] + generator.randbytes(end - start) + data[end:]
    if kind == 5:  # something from elsewhere in the file
        other = generator.randrange(len(data) + 1)
        return data[:start] + data[other : other + end - start] + data[end:]
    odd = generator.choice(ODD_TEXTS)
    return data[:start] + odd + data[end if kind == 6 else start :]


def damaged_digits(generator: random.Random, data: bytes) -> bytes:
    """The bytes with one digit changed, which leaves almost every format valid."""
    digits = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
    place = generator.choice(digits)
    return data[:place] + str(generator.randrange(10)).encode() + data[place + 1 :]


def damaged_record(generator: random.Random, record: Any) -> Any:
    """A copy of the record with one to three values damaged."""
    record = copy.deepcopy(record)
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        places = list(_places(record))
        if not places:
            break
        parent, key = generator.choice(places)
        _damage(generator, parent, key, places)
    return record


def put(record: Any, place: int, value: Any) -> Any:
    """A copy of the record with this value in one of its places."""
    record = copy.deepcopy(record)
    places = list(_places(record))
    parent, key = places[place % len(places)]
    parent[key] = value
    return record


def _damage(generator: random.Random, parent: Any, key: Any, places: list[tuple[Any, Any]]) -> None:
    value, kind = parent[key], generator.randrange(7)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(value))
    elif kind == 1:
        parent[f"{key}s"] = parent.pop(key)
    elif kind == 2:
        other, its_key = generator.choice(places)
        parent[key] = copy.deepcopy(other[its_key])
    elif kind <= 4 and isinstance(value, int | float):
        factor = generator.choice((-1, 0, 0.5, 1.0001, 2, 10, 1e3, 1e-3, 1e6, 1e-6, 1e12, 1e-12, 1e100, 1e-100))
        parent[key] = value * factor if abs(value) < 1e200 else 0
    else:
        parent[key] = copy.deepcopy(generator.choice(ODD_VALUES))


def _places(record: Any) -> Iterator[tuple[Any, Any]]:
    """All values in a record, as what holds them and under which key."""
    items = record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    for key, value in list(items):
        yield record, key
        yield from _places(value)
