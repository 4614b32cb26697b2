"""Texts that a spreadsheet would run."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conbo.cli.tables import read_rows, write_rows
from conbo.spaces import Categorical, Real, Space
from conbo.study import Study
from conbo.study.spreadsheets import marked, unmarked

TEXTS = ["=1+1", "+a", "-x", "@cmd", "\tx", "\rx", "'=1", "''=1", "'tis", "a=b", "-5", "-", "'-5", "+1e3", "=", "'"]


def test_what_looks_like_a_formula_gets_an_apostrophe_and_a_number_does_not() -> None:
    written = ["'=1+1", "'+a", "'-x", "'@cmd", "'\tx", "'\rx", "''=1", "''" + "'=1", "'tis", "a=b", "-5", "'-"]
    assert [marked(text) for text in TEXTS] == [*written, "''-5", "+1e3", "'=", "'"]
    assert [marked(value) for value in (-1.5, -3, None, True)] == [-1.5, -3, None, True]


@given(st.text(alphabet="'=+-@\t\r1ea. ", max_size=6))
def test_every_text_is_read_as_it_was(text: str) -> None:
    assert unmarked(marked(text)) == text
    assert marked(text)[:1] not in ("=", "@", "\t", "\r")


def test_a_study_goes_out_and_in_again(tmp_path: Path) -> None:
    space = Space(states={"=kind": Categorical(TEXTS)}, actions={"x": Real(-1, 1)})
    study = Study(space, method="uniform", initial=100)
    for trial in study.ask(40):
        study.tell(trial, -trial.action["x"])
    study.to_csv(tmp_path / "trials.csv")
    again = Study(space, method="uniform")
    assert again.import_csv(tmp_path / "trials.csv") == 40
    assert [(t.state, t.action, t.reward) for t in again.trials] == [
        (t.state, t.action, t.reward) for t in study.trials
    ]
    with (tmp_path / "trials.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[1] == "'=kind"
    assert all(row[1][:1] not in ("=", "@", "\t", "\r") for row in rows)
    assert any(row[3].startswith("-") for row in rows)  # a reward is a number


def test_cells_that_a_spreadsheet_writes_in_its_own_way_are_the_choices(tmp_path: Path) -> None:
    space = Space(actions={"flag": Categorical([True, False]), "size": Categorical([1.0, 2.5, "1"])})
    (tmp_path / "trials.csv").write_text("flag,size,reward\nTRUE,2.50,1\nfalse,1.0,2\nFALSE,1,3\n")
    study = Study(space, method="uniform")
    assert study.import_csv(tmp_path / "trials.csv") == 3
    assert [tuple(trial.action.values()) for trial in study.trials] == [(True, 2.5), (False, 1.0), (False, "1")]


def test_tables_of_commands_go_out_and_in_again(tmp_path: Path) -> None:
    rows = [{"=name": text, "value": "-5"} for text in TEXTS]
    write_rows(tmp_path / "rows.csv", rows)
    assert list(read_rows(tmp_path / "rows.csv").values()) == rows


def test_texts_of_a_workbook_are_no_formulas(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    texts = [*TEXTS, "#N/A", "\x1b[31mno power\x1b[0m"]
    write_rows(tmp_path / "rows.xlsx", [{"=name": text, "value": -5.5} for text in texts])
    sheet = openpyxl.load_workbook(tmp_path / "rows.xlsx").active
    (name, _), *cells = sheet.iter_rows()
    read = [text.replace("\r", "\n") for text in (*TEXTS, "#N/A", "[31mno power[0m")]  # XML has one kind of line end
    assert [(cell.data_type, cell.value) for cell in (name, *(row[0] for row in cells))] == [
        ("s", text) for text in ("=name", *read)
    ]
    assert {(row[1].data_type, row[1].value) for row in cells} == {("n", -5.5)}
