"""Readers under attack: damaged input is refused with an error of conbo, or what was read is valid in every field."""

import json
import random
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damage import put
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from readers import (
    JSON_COLUMNS,
    READERS,
    ROW,
    STUDY_FILE,
    TABLE,
    Reader,
    as_toml,
    judged_policy,
    judged_row,
    judged_run,
    judged_settings,
    judged_study_file,
    judged_table,
    policy_records,
    run_lines,
    sealed_again,
    settings_record,
)

ATTACKS = 300  # of each reader, in the fast tests
SOAK = 100_000  # of all readers

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
PLACES = st.integers(0, 1000)
many = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


def attack(reader: Reader, folder: Path, seeds: range) -> Counter[str]:
    """How many inputs were refused and how many were valid; a failure says which seed to try again."""
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        try:
            outcomes[reader.attack(random.Random(seed), folder)] += 1
        except Exception as error:
            error.add_note(f"the seed of this attack on {reader.name} was {seed}")
            raise
    return outcomes


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_damaged_input_is_refused_or_valid(reader: Reader, tmp_path: Path) -> None:
    outcomes = attack(reader, tmp_path, range(ATTACKS if reader.share > 5 else ATTACKS // 5))
    assert outcomes["refused"] > outcomes.total() / 20


@pytest.mark.soak
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_much_damaged_input(
    reader: Reader, part: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    half = SOAK * reader.share // 200
    outcomes = attack(reader, tmp_path, range(10**6 + part * half, 10**6 + (part + 1) * half))
    record_property(
        f"{reader.name}, part {part}", f"{outcomes['refused']} refused, {outcomes['valid']} valid of {half}"
    )


def test_undamaged_input_is_valid(tmp_path: Path) -> None:
    assert [judged_policy(record) for record in policy_records()] == ["valid"] * 4
    assert judged_study_file(STUDY_FILE.encode(), tmp_path) == "valid"
    assert judged_study_file(as_toml(tomllib.loads(STUDY_FILE)), tmp_path) == "valid"
    assert judged_table(TABLE.encode(), tmp_path) == "valid"
    lines = "".join(json.dumps(line) + "\n" for line in run_lines())
    assert judged_run(lines.encode(), tmp_path / "run.jsonl") == "valid"
    row = ROW | {name: json.dumps(ROW[name]) for name in JSON_COLUMNS}
    assert judged_row(row) == "valid"
    assert judged_settings(json.dumps(settings_record())) == "valid"


# Any value in any place


@many
@given(st.integers(0, 3), PLACES, JSON)
def test_policies_with_any_value_in_any_place(which: int, place: int, value: Any) -> None:
    judged_policy(sealed_again(put(policy_records()[which], place, value)))


@many
@given(PLACES, JSON)
def test_settings_with_any_value_in_any_place(place: int, value: Any) -> None:
    judged_settings(json.dumps(put(settings_record(), place, value)))


@many
@given(PLACES, JSON)
def test_runs_with_any_value_in_any_place(tmp_path: Path, place: int, value: Any) -> None:
    lines = put(run_lines(), place, value)
    judged_run("".join(json.dumps(line) + "\n" for line in lines).encode(), tmp_path / "run.jsonl")


@many
@given(st.sampled_from(sorted(ROW)), JSON, st.booleans())
def test_rows_with_any_value_in_any_column(column: str, value: Any, encoded: bool) -> None:
    row = ROW | {name: json.dumps(ROW[name]) for name in JSON_COLUMNS}
    judged_row(row | {column: json.dumps(value) if encoded else value})


@many
@given(st.lists(st.lists(st.text(max_size=8), max_size=12), max_size=4))
def test_tables_with_any_cells(tmp_path: Path, rows: list[list[str]]) -> None:
    head, *_ = TABLE.splitlines()
    text = "\n".join([head, *(",".join(cells) for cells in rows)])
    judged_table(text.encode("utf-8", "surrogatepass"), tmp_path)


@many
@given(PLACES, JSON)
def test_study_files_with_any_value_in_any_place(tmp_path: Path, place: int, value: Any) -> None:
    judged_study_file(as_toml(put(tomllib.loads(STUDY_FILE), place, value)), tmp_path)


@many
@given(st.binary(max_size=64))
def test_any_bytes(tmp_path: Path, text: bytes) -> None:
    judged_study_file(text, tmp_path)
    judged_table(text, tmp_path)
    judged_run(text, tmp_path / "run.jsonl")
    judged_run(text, tmp_path / "run.jsonl.xz")
    judged_settings(text.decode(errors="replace"))
