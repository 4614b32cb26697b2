"""ask, tell, fail, import and export."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import conbo as library
from conbo.cli.study_source import parse_row, study_source
from conbo.errors import StorageError
from conbo.trials import Trial

Conbo = Callable[..., Result]


def _trials() -> tuple[Trial, ...]:
    return library.open_study("study.db").trials


def test_ask_for_one_and_tell_it(conbo: Conbo, folder: Path) -> None:
    trial = json.loads(conbo("ask", "--json").stdout)
    assert (trial["number"], list(trial["state"]), list(trial["action"])) == (0, ["demand"], ["stock"])
    conbo("tell", "0", "-12.5")  # a negative number is no option
    conbo("tell", "study.toml", "0", "-12.5")  # to repeat it changes nothing
    assert (_trials()[0].status, _trials()[0].reward) == ("completed", -12.5)
    assert "was told reward=-12.5 before" in conbo("tell", "0", "3", code=1).stderr


def test_ask_for_several_in_a_dictated_state(conbo: Conbo, folder: Path) -> None:
    lines = conbo("ask", "study.toml", "-n", "3", "--state", "demand=42").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[str(i), "demand=42"] for i in range(3)]
    assert conbo("ask", "-n", "2", "--json").stdout.count("\n") == 2
    assert "`10.0 <= demand <= 100.0` must hold, but got demand=7" in conbo("ask", "--state", "demand=7", code=1).stderr
    assert "unknown state parameter 'dmand'" in conbo("ask", "--state", "dmand=7", code=1).stderr
    assert "A state must be given as NAME=VALUE, but got 'demand'" in conbo("ask", "--state", "demand", code=2).stderr


def test_asked_values_have_every_digit(conbo: Conbo, folder: Path) -> None:
    file = folder / "study.toml"
    narrow = file.read_text().replace("low = 0, high = 150", "low = 1000.0001, high = 1000.0009")
    file.write_text(narrow + 'lot = { type = "integer", low = 12345600, high = 12345699 }\n')
    line = conbo("ask", "--state", "demand=42.123456789").stdout
    (trial,) = _trials()
    assert line == f"0  demand=42.123456789  stock={trial.action['stock']!r}  lot={trial.action['lot']}\n"
    assert "stock: real from 1000.0001 to 1000.0009\n" in conbo("check").stdout


def test_a_state_has_every_name_once(conbo: Conbo, folder: Path) -> None:
    refused = conbo("ask", "--state", "demand=42", "--state", "demand=43", code=2).stderr
    assert "A state must have every name once, but got 'demand' twice." in refused


def test_a_file_that_cannot_be_written_asks_for_nothing(conbo: Conbo, folder: Path) -> None:
    (folder / "batch.csv").write_text("measured")
    assert "batch.csv exists already: --force replaces it." in conbo("ask", "-o", "batch.csv", code=2).stderr
    assert (folder / "batch.csv").read_text() == "measured"
    refused = conbo("ask", "-o", "nowhere/batch.csv", code=1).stderr
    assert "a table must be written to a folder that exists, but 'nowhere' does not." in refused
    conbo("ask", "-o", "batch.csv", "--force")
    assert [row["number"] for row in _read(folder / "batch.csv")] == ["0"]  # the first trial that was asked for


def test_telling_and_exporting_do_without_torch(conbo: Conbo, folder: Path) -> None:
    conbo("ask")
    for arguments in (["tell", "0", "1"], ["export"]):
        call = (
            f"import sys; from conbo.cli import main\ntry: main({arguments})\nexcept SystemExit as end: code = end.code"
        )
        code = f"{call}\nsys.exit(code or 'torch' in sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert _trials()[0].reward == 1


def test_noise(conbo: Conbo, folder: Path) -> None:
    conbo("ask")
    conbo("tell", "0", "1", "--noise", "0.25")
    assert _trials()[0].noise == 0.25


def test_outcomes(conbo: Conbo, folder: Path) -> None:
    conbo("ask", "-n", "2")
    conbo("tell", "0", "1", "--outcome", "wait=4.25", "--outcome", "a=b=-1e3")
    conbo("tell", "1", "2")
    assert [trial.measured for trial in _trials()] == [{"wait": 4.25, "a=b": -1000.0}, {}]
    head, *lines = conbo("export").stdout.splitlines()
    assert head.endswith(",reward,status,error,outcome:wait,outcome:a=b")
    assert [line.split(",")[3:] for line in lines] == [
        ["1.0", "completed", "", "4.25", "-1000.0"],
        ["2.0", "completed", "", "", ""],
    ]
    rows = json.loads(conbo("export", "--json").stdout)
    assert [row["outcome:wait"] for row in rows] == [4.25, None]


@pytest.mark.parametrize("name", ["results.csv", "results.json"])
def test_outcomes_in_a_file(conbo: Conbo, folder: Path, name: str) -> None:
    conbo("ask", "-n", "3")
    _write(folder / name, [{"number": i, "reward": i, "outcome:wait": wait} for i, wait in enumerate((0.5, "", -2))])
    assert conbo("tell", "--file", name).stdout == "3 told, 0 failed, 0 left for later.\n"
    assert [trial.measured for trial in _trials()] == [{"wait": 0.5}, {}, {"wait": -2.0}]
    conbo("export", "-o", name)
    assert (
        "leave --noise, --cost and --outcome out" in conbo("tell", "--file", name, "--outcome", "wait=1", code=2).stderr
    )


def test_no_file_replaces_a_database(conbo: Conbo, folder: Path) -> None:
    (folder / "study.toml").write_text((folder / "study.toml").read_text().replace("study.db", "study.json"))
    conbo("ask", "-n", "2")
    (folder / "states.csv").write_text("demand\n30\n")
    for arguments in (["export"], ["ask", "--force"], ["policy", "--states", "states.csv"]):
        refused = conbo(*arguments, "-o", "study.json", code=1).stderr
        assert "a file must not replace a database, but 'study.json' is one." in refused
    study = library.open_study("study.json")
    with pytest.raises(StorageError, match="a file must not replace a database"):
        study.to_csv("study.json")
    assert len(library.open_study("study.json").trials) == 2


def test_fail(conbo: Conbo, folder: Path) -> None:
    conbo("ask", "-n", "2")
    conbo("fail", "1", "--error", "the power went out")
    assert [(trial.status, trial.error) for trial in _trials()] == [("running", ""), ("failed", "the power went out")]
    conbo("ask", "-n", "1")
    conbo("fail", "2", "--error", "two\nlines \x1b[2J")
    assert r"the last was trial 2: two\nlines \x1b[2J" in conbo("status").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["tell", "7", "1"], 1, "unknown trial 7"),
        (["tell", "one", "1"], 1, "a trial must be named by its number, but got 'one'."),
        (["tell", "0", "much"], 1, "a reward must be one finite number, but got 'much'."),
        (["tell", "0", "nan"], 1, "a reward must be one finite number, but got nan."),
        (["tell", "0", "1_0"], 1, "a reward must be one finite number, but got '1_0'."),
        (["tell", "0_0", "1"], 1, "a trial must be named by its number, but got '0_0'."),
        (["tell", "0"], 2, "Expected [STUDY] ID VALUE, but got 0."),
        (["tell", "0", "1", "--nois", "3"], 2, "Expected [STUDY] ID VALUE"),
        (["tell", "0", "1", "--outcome", "wait"], 2, "an outcome must be NAME=VALUE, but got 'wait'."),
        (["tell", "0", "1", "--outcome", "wait=long"], 1, "a value of the outcome 'wait' must be one finite number"),
        (["tell", "0", "1", "--outcome", "=1"], 1, "the name of an outcome must be a non-empty string, but got ''."),
        (["tell", "0", "1", "--outcome", "w=1", "--outcome", "w=2"], 2, "must be given once, but got 'w' twice."),
        (["tell", "--file", "none.csv"], 2, "File 'none.csv' does not exist."),
        (["fail"], 2, "Expected [STUDY] ID, but got nothing."),
    ],
)
def test_wrong_calls(conbo: Conbo, folder: Path, arguments: list[str], code: int, message: str) -> None:
    conbo("ask")
    assert message in conbo(*arguments, code=code).stderr
    assert _trials()[0].status == "running"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("batch.csv", b"number,reward\n0,\xff\n", "must be a CSV file in UTF-8"),
        ("batch.csv", b'number,reward\n0,"1' + b"0" * 200_000, "line 2, column 'reward' has more"),
        ("batch.json", b'[{"number": 0, "reward": ', "this is not JSON"),
        ("batch.json", b"[" * 9999, "this is not JSON"),
        ("batch.json", b"\xff\xfe", "this is not JSON"),
    ],
)
def test_damaged_files(conbo: Conbo, folder: Path, name: str, content: bytes, message: str) -> None:
    conbo("ask")
    (folder / name).write_bytes(content)
    assert message in conbo("tell", "--file", name, code=1).stderr
    assert _trials()[0].status == "running"


@pytest.mark.parametrize("row", ["1,7.0,", "1,,broken", "2,1.0,\n2,2.0,", "2,1.0,\n2,,broken"])
def test_rows_that_contradict_a_result_are_refused_with_all_others(conbo: Conbo, folder: Path, row: str) -> None:
    conbo("ask", "-n", "3")
    conbo("tell", "1", "5.0")
    (folder / "batch.csv").write_text(f"number,reward,error\n0,1.0,\n{row}\n")

    assert "cannot" in conbo("tell", "--file", "batch.csv", code=1).stderr
    assert '"completed": 1' in conbo("status", "--json").stdout


@pytest.mark.parametrize("name", ["batch.csv", "batch.json"])
def test_files_back_and_forth(conbo: Conbo, folder: Path, name: str) -> None:
    assert f"conbo tell study.toml --file {name}" in conbo("ask", "-n", "4", "-o", name).stdout
    rows = _read(folder / name)
    assert [list(row) for row in rows] == [["number", "demand", "stock", "reward"]] * 4
    assert float(rows[0]["stock"]) == _trials()[0].action["stock"]  # every digit
    assert conbo("tell", "--file", name, code=3).stdout == "0 told, 0 failed, 4 left for later.\n"

    rows = [{**row, "error": ""} for row in rows]
    rows[0]["reward"], rows[1]["reward"], rows[2]["error"] = 1.5, -2, "it broke"
    _write(folder / name, rows)
    assert conbo("tell", "--file", name).stdout == "2 told, 1 failed, 1 left for later.\n"
    assert [trial.reward for trial in _trials()] == [1.5, -2, None, None]
    assert [trial.status for trial in _trials()] == ["completed", "completed", "failed", "running"]

    rows[2]["error"], rows[3]["error"], rows[3]["reward"] = "", " ", 4  # a blank is no error
    _write(folder / name, rows)
    assert conbo("tell", "study.toml", "--file", name).stdout == "3 told, 0 failed, 1 left for later.\n"
    assert _trials()[3].reward == 4


ASKED = """
storage = "study.db"
method = "uniform"

[states]
temperature = { type = "real", low = 300, high = 400 }
shop = { type = "categorical", choices = ["north", true, 0.5, 0.3333333333333333, 12345678901234567] }

[actions]
rate = { type = "real", low = 1e-4, high = 1, log = true }
count = { type = "integer", low = 1, high = 99999 }
volume = { type = "real", low = 1e9, high = 1e10, log = true }
"""
POINT = {"temperature": "371.23456", "shop": "north", "rate": "0.001", "count": "42", "volume": "2e9"}


@pytest.mark.parametrize(
    ("column", "cell", "asked"),
    [
        ("temperature", "371.5", "371.4"),  # another number, although it is near
        ("temperature", "350", "371.23456"),
        ("temperature", "four hundred", "371.23456"),
        ("temperature", "nan", "371.23456"),
        ("temperature", "4e2", "371.23456"),  # rounded, but by too much
        ("shop", "south", "north"),
        ("shop", "FALSE", "true"),
        ("rate", "0.00", "0.001"),
        ("rate", "0.0012", "0.001"),
        ("count", "41", "42"),
        ("volume", "1e-320", "2e9"),
    ],
)
@pytest.mark.parametrize("name", ["batch.csv", "batch.json"])
def test_rows_with_other_states_or_actions_are_refused(
    conbo: Conbo, folder: Path, name: str, column: str, cell: str, asked: str
) -> None:
    (folder / "study.toml").write_text(ASKED)
    _enqueue({**POINT, column: asked}, {"temperature": 300.0, "shop": "north", "rate": 0.01, "count": 1, "volume": 1e9})
    conbo("ask", "-n", "2", "-o", name)
    first, second = _read(folder / name)
    _write(folder / name, [{**first, "reward": 1, column: cell}, {**second, "reward": 2}])
    refused = conbo("tell", "--file", name, code=1).stderr
    place = "line 2" if name.endswith(".csv") else "row 1"
    value = repr(_trials()[0].point[column])
    assert f"{place}: column '{column}' must have the value {value}, which was asked for in trial 0" in refused
    assert f"but has {cell!r}." in refused
    assert {trial.status for trial in _trials()} == {"running"}


@pytest.mark.parametrize(
    ("column", "cell", "asked"),
    [
        ("temperature", "371.23", "371.23456"),  # rounded
        ("temperature", "371.0", "371.23456"),
        ("temperature", "3.7e2", "370.6"),
        ("temperature", "371.234558", "371.23456"),  # in single precision
        ("temperature", "", "371.23456"),
        ("shop", "TRUE", "true"),  # as a spreadsheet writes it
        ("shop", "0.50", "0.5"),
        ("shop", "0.333333333333333", "0.3333333333333333"),  # a spreadsheet keeps fifteen digits
        ("shop", "12345678901234567", "12345678901234567"),  # more digits than a float has
        ("shop", "12345678901234500", "12345678901234567"),
        ("rate", "1.0E-03", "0.001"),
        ("rate", "0.00123", "0.001234"),
        ("count", "42.0", "42"),
    ],
)
def test_rounded_states_and_actions_are_those_that_were_asked_for(
    conbo: Conbo, folder: Path, column: str, cell: str, asked: str
) -> None:
    (folder / "study.toml").write_text(ASKED)
    _enqueue({**POINT, column: asked})
    conbo("ask", "-o", "batch.csv")
    (row,) = _read(folder / "batch.csv")
    _write(folder / "batch.csv", [{**row, "reward": 1, column: cell}])
    assert conbo("tell", "--file", "batch.csv").stdout == "1 told, 0 failed, 0 left for later.\n"


@pytest.mark.parametrize("name", ["batch.csv", "batch.json"])
def test_rows_with_other_seeds_are_refused(conbo: Conbo, folder: Path, name: str) -> None:
    file = folder / "study.toml"
    file.write_text("seeds = [7, 12345678901234567]\n" + file.read_text())
    conbo("ask", "-n", "2", "-o", name)
    rows = [{**row, "reward": 1} for row in _read(folder / name)]
    assert [int(str(row["seed"])) for row in rows] == [trial.seed for trial in _trials()] == [7, 12345678901234567]
    _write(folder / name, [{**rows[0], "seed": 8}, {**rows[1], "seed": 7}])
    refused = conbo("tell", "--file", name, code=1).stderr
    assert "must have no wrong row, but has 2:" in refused
    assert "column 'seed' must have the value 7, which was asked for in trial 0, or be left out, but has" in refused
    assert {trial.status for trial in _trials()} == {"running"}
    _write(folder / name, [{**rows[0], "seed": ""}, {**rows[1], "seed": "1.23456789012346E+16"}])  # of a spreadsheet
    assert conbo("tell", "--file", name).stdout == "2 told, 0 failed, 0 left for later.\n"


@pytest.mark.parametrize("name", ["batch.csv", "batch.json"])
def test_large_seeds_are_compared_digit_by_digit(conbo: Conbo, folder: Path, name: str) -> None:
    asked = 2**62 + 1
    file = folder / "study.toml"
    file.write_text(f"seeds = [{asked}]\n" + file.read_text())
    conbo("ask", "-o", name)
    (row,) = _read(folder / name)
    for wrong in (asked - 1, asked + 1):
        _write(folder / name, [{**row, "reward": 1, "seed": wrong}])
        assert f"column 'seed' must have the value {asked}" in conbo("tell", "--file", name, code=1).stderr
    _write(folder / name, [{**row, "reward": 1, "seed": 4611686018427390000}])  # of a spreadsheet
    assert conbo("tell", "--file", name).stdout == "1 told, 0 failed, 0 left for later.\n"


def _enqueue(*points: dict[str, Any]) -> None:
    """Make these the points of the next trials; strings stand for numbers and choices, as in a study file."""
    study = study_source("study.toml", None).create_or_resume()
    for point in points:
        values = {**parse_row(study.space.states, point), **parse_row(study.space.actions, point)}
        state = {name: values.pop(name) for name in study.space.states}
        study.enqueue(state, values)


def test_nothing_of_a_file_is_told_if_a_value_is_wrong(conbo: Conbo, folder: Path) -> None:
    conbo("ask", "-n", "2")
    (folder / "results.csv").write_text("number,reward\n0,1\n1,much\n")
    assert "one finite number, but got 'much'." in conbo("tell", "--file", "results.csv", code=1).stderr
    assert _trials()[0].status == "running"
    for content, messages in {
        "number,reward\n0,1\n7,2\n\n1,1,5\n": [
            "'results.csv' must have no wrong row, but has 2:\n  line 3: unknown trial 7: known are 0 to 1.",
            "line 5: there must be a column for every value, but got ['5'] beyond the last.",
        ],
        "number,reward,error\n0,1,\n1,2,broke\n": [
            "line 3: a trial must have a reward or an error, but trial 1 has both."
        ],
        "nr,reward\n0,1\n": ["must have the columns 'number' and 'reward', but has 'nr', 'reward'."],
        "number,rewrd\n0,1\n": ["must have the columns 'number' and 'reward', but has 'number', 'rewrd'."],
    }.items():
        (folder / "results.csv").write_text(content)
        told = conbo("tell", "--file", "results.csv", code=1).stderr
        assert [message for message in messages if message not in told] == []
    assert _trials()[0].status == "running"
    (folder / "results.json").write_text("3")
    assert "results.json: this must be a list of objects." in conbo("tell", "--file", "results.json", code=1).stderr
    (folder / "results.json").write_text("[")
    assert "results.json: this is not JSON" in conbo("tell", "--file", "results.json", code=1).stderr


def test_an_error_is_a_text(conbo: Conbo, folder: Path) -> None:
    conbo("ask", "-n", "3")
    told = [{"number": i, "error": error} for i, error in enumerate((False, 0, ["broken"]))]
    (folder / "results.json").write_text(json.dumps(told))
    refused = conbo("tell", "--file", "results.json", code=1).stderr
    for row, error in enumerate(("False", "0", "['broken']"), 1):
        assert f"row {row}: an error must be text, but got {error}." in refused
    (folder / "results.json").write_text(
        '[{"number": 0, "reward": 1, "error": null}, {"number": 1, "error": ""}, {"number": 2, "error": "broken"}]'
    )
    assert conbo("tell", "--file", "results.json").stdout == "1 told, 1 failed, 1 left for later.\n"
    assert [trial.status for trial in _trials()] == ["completed", "running", "failed"]


def test_rows_whose_noise_is_unlike_before_are_refused_with_all_others(conbo: Conbo, folder: Path) -> None:
    conbo("ask", "-n", "4")
    (folder / "batch.csv").write_text("number,reward,noise\n0,1,0.5\n1,2,\n2,3,0.5\n3,4,\n")
    told = conbo("tell", "--file", "batch.csv", code=1).stderr
    assert "must have no wrong row, but has 2:\n  line 3: `noise` must be given with every reward or with none" in told
    assert "line 5: " in told
    assert {trial.status for trial in _trials()} == {"running"}
    conbo("tell", "0", "1")
    told = conbo("tell", "--file", "batch.csv", code=1).stderr
    assert "line 4: `noise` must be given with every reward or with none, but got noise=0.5 for trial 2" in told
    assert [trial.status for trial in _trials()] == ["completed", "running", "running", "running"]


def test_exported_noise_can_be_imported(conbo: Conbo, folder: Path) -> None:
    conbo("ask", "-n", "2")
    conbo("tell", "0", "1.5", "--noise", "0.25")
    conbo("export", "-o", "trials.csv")
    assert (folder / "trials.csv").read_text().startswith("number,demand,stock,reward,status,noise,error\n0,")
    assert [row["noise"] for row in json.loads(conbo("export", "--json").stdout)] == [0.25, None]
    conbo("import", "trials.csv")
    assert [trial.noise for trial in _trials()] == [0.25, None, 0.25]


def test_import_and_export(conbo: Conbo, folder: Path) -> None:
    (folder / "earlier.csv").write_text("demand,stock,reward\n30,40,70\n95,90,270\n")
    assert conbo("import", "earlier.csv").stdout == "2 results added.\n"
    assert [trial.reward for trial in _trials()] == [70, 270]
    (folder / "empty.csv").write_text("demand,stock,reward\n")
    assert conbo("import", "study.toml", "empty.csv", code=3).stdout == "0 results added.\n"
    (folder / "wrong.csv").write_text("demand,stock,reward\n3,40,70\n95,90,high\n")
    errors = conbo("import", "wrong.csv", code=1).stderr
    assert "line 2:" in errors
    assert "line 3:" in errors

    assert conbo("export").stdout.startswith("number,demand,stock,reward,status,error\n0,30.0,40.0,70.0,completed,\n1,")
    assert json.loads(conbo("export", "--json").stdout)[1]["reward"] == 270
    conbo("export", "study.db", "-o", "all.json")
    assert _read(folder / "all.json")[0]["status"] == "completed"


def _read(path: Path) -> list[dict[str, object]]:
    if path.suffix == ".json":
        rows: list[dict[str, object]] = json.loads(path.read_text())
        return rows
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    if path.suffix == ".json":
        path.write_text(json.dumps(rows))
        return
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


# Copies


def test_import_counts_the_rows_that_it_skips(conbo: Conbo, folder: Path) -> None:
    rows = ["30,40,7,completed", "30,40,,failed", "30,41,,running", "30,42,,failed", "30,43,8,"]
    (folder / "trials.csv").write_text("\n".join(["demand,stock,reward,status", *rows, ""]))
    done = conbo("import", "trials.csv")
    assert done.stdout == "2 results added.\n"
    skipped = "Rows of 'trials.csv' whose status is not 'completed' were skipped: 2 'failed', 1 'running'."
    assert f"Warning: {skipped}\n" in done.stderr


def test_export_of_the_database(conbo: Conbo, folder: Path) -> None:
    conbo("ask", "-n", "2")
    conbo("tell", "1", "2.5")
    assert conbo("export", "--database", "copy.db").stdout == "Wrote copy.db.\n"
    assert conbo("export", "copy.db").stdout == conbo("export").stdout
    assert "copy.db exists already: --force replaces it" in conbo("export", "--database", "copy.db", code=2).stderr
    conbo("tell", "0", "1.5")
    conbo("export", "--database", "copy.db", "--force")
    assert conbo("export", "copy.db").stdout == conbo("export").stdout
    assert "leave --output and --json out" in conbo("export", "--database", "more.db", "--json", code=2).stderr
    assert "there is no study 'x'" in conbo("export", "--name", "x", "--database", "more.db", code=1).stderr
    assert not (folder / "more.db").exists()


def test_a_study_file_says_where_its_study_is_if_that_is_elsewhere(conbo: Conbo, folder: Path) -> None:
    assert conbo("ask").stderr == ""
    (folder / "inner").mkdir()
    inner = folder / "inner" / "study.toml"
    text = (folder / "study.toml").read_text()
    inner.write_text(text.replace("study.db", "../study.db"))
    for verb in (["ask"], ["status"], ["tell", "0", "1"]):
        wanted = f"{inner} keeps the study in '{folder / 'study.db'}'.\n"
        assert conbo(verb[0], str(inner), *verb[1:]).stderr == wanted
    inner.write_text(text.replace("study.db", "postgresql://me:secret@no.such.host.invalid/db"))
    told = conbo("tell", str(inner), "0", "1", code=1).stderr
    assert told.startswith(f"{inner} keeps the study in 'postgresql+psycopg://me:***@no.such.host.invalid/db'.\n")
    assert "secret" not in told


def test_a_parameter_may_be_called_error(conbo: Conbo, folder: Path) -> None:
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("stock =", "error ="))
    assert "with trial 0: fill in the reward, then" in conbo("ask", "-o", "batch.csv").stdout
    (row,) = _read(folder / "batch.csv")
    _write(folder / "batch.csv", [{**row, "reward": 1.5}])
    assert conbo("tell", "--file", "batch.csv").stdout == "1 told, 0 failed, 0 left for later.\n"


@pytest.mark.parametrize("name", ["noise", "error"])
def test_an_export_says_what_a_parameter_hides(conbo: Conbo, folder: Path, name: str) -> None:
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("stock =", f"{name} ="))
    conbo("ask", "-n", "2")
    assert conbo("export").stderr == ""
    conbo("tell", "0", "1", "--noise", "0.5")
    conbo("fail", "1", "--error", "broken")
    assert f"Warning: The column '{name}' holds the parameter of this name" in conbo("export").stderr


def test_a_cost_is_told_as_an_outcome(conbo: Conbo, folder: Path) -> None:
    conbo("ask")
    conbo("tell", "0", "1.5", "--cost", "12", "--outcome", "wait=3")
    assert [trial.measured for trial in _trials()] == [{"wait": 3.0, "cost": 12.0}]


def test_an_empty_study_has_a_table_with_names(conbo: Conbo, folder: Path) -> None:
    library.Study(library.Space({"demand": library.Real(10, 100)}, {"stock": library.Real(0, 150)}), storage="study.db")
    assert conbo("export", "study.db").stdout == "number,demand,stock,reward,status,error\n"
    conbo("export", "study.db", "-o", "trials.csv")
    assert (folder / "trials.csv").read_text().splitlines() == ["number,demand,stock,reward,status,error"]
    odd = library.Space({"error": library.Real(0, 1)}, {"x": library.Real(0, 1)})
    library.Study(odd, common_random_numbers=True, storage="odd.db")
    assert conbo("export", "odd.db").stdout == "number,error,x,seed,reward,status\n"


def test_export_writes_what_the_name_of_the_file_says(conbo: Conbo, folder: Path) -> None:
    conbo("ask", "-n", "2")
    conbo("tell", "0", "1.5")
    conbo("fail", "1", "--error", "no power")
    conbo("export", "-o", "trials.parquet")
    table = pytest.importorskip("polars").read_parquet(folder / "trials.parquet").to_dicts()
    conbo("export", "-o", "trials.json")
    assert table == json.loads((folder / "trials.json").read_text())
    assert [(row["reward"], row["status"], row["error"]) for row in table] == [
        (1.5, "completed", None),
        (None, "failed", "no power"),
    ]
    conbo("export", "-o", "trials.csv")
    assert (folder / "trials.csv").read_text().splitlines()[2].endswith(",,failed,no power")
    assert "must be written as .csv, .json, but got 'a.xlsx'" in conbo("ask", "-o", "a.xlsx", code=1).stderr
    for command in (["export"], ["policy", "--states", "trials.csv"]):
        refused = conbo(*command, "-o", "trials.txt", code=1).stderr
        assert "must be written as .csv, .json, .parquet, .xlsx, but got 'trials.txt'" in refused
    assert len(_trials()) == 2  # nothing was asked for
    assert "must be read from a .csv or .json file" in conbo("tell", "--file", "trials.parquet", code=1).stderr


def test_a_spreadsheet_needs_a_library_and_says_so(conbo: Conbo, folder: Path) -> None:
    conbo("ask")
    if find_spec("openpyxl") is None:
        assert "pip install openpyxl" in conbo("export", "-o", "trials.xlsx", code=1).stderr
    else:
        conbo("export", "-o", "trials.xlsx")
        assert (folder / "trials.xlsx").read_bytes().startswith(b"PK")


def test_two_columns_of_one_name_are_refused(conbo: Conbo, folder: Path) -> None:
    conbo("ask")
    (folder / "results.csv").write_text("number,reward,reward\n0,1,2\n")
    told = conbo("tell", "--file", "results.csv", code=1).stderr
    assert "'results.csv' must have one column for 'reward', but has several." in told
    (folder / "results.csv").write_text("number,reward,,\n0,1,,\n")  # columns without a name
    assert conbo("tell", "--file", "results.csv").stdout == "1 told, 0 failed, 0 left for later.\n"


def test_one_result_is_no_results(conbo: Conbo, folder: Path) -> None:
    (folder / "one.csv").write_text("demand,stock,reward\n20,30,1.5\n")
    assert conbo("import", "one.csv").stdout == "1 result added.\n"


def test_every_command_accepts_the_spellings_of_a_spreadsheet(conbo: Conbo, folder: Path) -> None:
    (folder / "study.toml").write_text(
        """
        method = "uniform"
        states = { s = { type = "categorical", choices = [true, 3, 2.0] } }
        actions = { a = { type = "integer", low = 0, high = 9 } }
        """
    )
    (folder / "earlier.csv").write_text("s,a,reward\nTRUE,1,9\n3.0,9.0,9\n2,1,0\nTRUE,9,0\n3,1,0\n2.0,9,9\n")
    assert conbo("import", "earlier.csv").stdout == "6 results added.\n"
    states = [trial.state["s"] for trial in _trials()[:3]]
    assert repr(states) == "[True, 3, 2.0]"
    for text, value in zip(("TRUE", "3.0", "2"), states, strict=True):
        assert json.loads(conbo("ask", "--state", f"s={text}", "--json").stdout)["state"] == {"s": value}
    (folder / "states.csv").write_text("s\nTRUE\n3.0\n2\n")
    answers = json.loads(conbo("policy", "--states", "states.csv", "--json").stdout)
    assert repr([row["s"] for row in answers]) == "[True, 3, 2.0]"
    conbo("compare", "earlier.csv")
