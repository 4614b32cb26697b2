"""Results as files: written, read, and refused row by row."""

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from conbo.errors import RewardError, StudyError
from conbo.outcome_constraints import AtMost
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.study import Study

SPACE = Space(
    states={"s": Real(0, 1), "k": Categorical(["a", 2, True])},
    actions={"x": Real(0.1, 10, log=True), "n": Integer(1, 5)},
)


def new_study(**settings: Any) -> Study:
    return Study(**{"space": SPACE, "method": "uniform", **settings})


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_what_is_written_can_be_imported(tmp_path: Path) -> None:
    study, path = new_study(), tmp_path / "trials.csv"
    for trial in study.ask(6):
        study.tell(trial, 1 / (trial.number + 3), noise=0.1 * trial.number)
    study.fail(study.ask(), "lost, \n but found")
    study.ask()
    study.to_csv(path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["completed"] * 6 + ["failed", "running"]
    assert rows[6]["error"] == "lost, \n but found"
    other = new_study()
    assert other.import_csv(path) == 6
    assert other.trials == study.trials[:6]


def test_a_file_is_kept_if_the_trials_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "trials.csv", "precious")

    def full_disk(part: Path, content: bytes) -> None:
        with part.open("wb") as file:
            file.write(content[:3])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="no space left"):
        new_study().to_csv(path)
    assert [file.name for file in tmp_path.iterdir()] == ["trials.csv"]
    assert path.read_text() == "precious\n"


def test_imported_results_come_after_what_is_there_and_count(tmp_path: Path) -> None:
    study = new_study(initial=3)
    study.ask()
    path = written(tmp_path / "old.csv", "k,comment,n,reward,s,x", "2,good,3,1.5,0.25,1", "True,,1.0,-2,1,10")
    assert study.import_csv(path) == 2
    assert [trial.number for trial in study.trials] == [0, 1, 2]
    assert study.trials[1].state == {"s": 0.25, "k": 2}
    assert study.trials[2].action == {"x": 10.0, "n": 1}
    assert (study.trials[2].state["k"], study.trials[2].reward) == (True, -2.0)
    assert study.import_csv(path) == 2


def test_every_bad_row_is_named_and_nothing_is_imported(tmp_path: Path) -> None:
    lines = [
        "s,k,x,n,reward",
        "0.5,a,1,1,1.0",
        "1.5,a,1,1,1.0",
        "0.5,b,1,1,1.0",
        "0.5,a,1,2.5,1.0",
        "0.5,a,one,1,1.0",
        "0.5,a,1,1,",
        "0.5,a,1,1,nan",
        "0.5,a",
        "0.5,a,1,1,1,5",
    ]
    study = new_study()
    with pytest.raises(StudyError) as raised:
        study.import_csv(written(tmp_path / "bad.csv", *lines))
    first, *rows = str(raised.value).splitlines()
    assert first == f"nothing was imported from '{tmp_path / 'bad.csv'}', since not every row is a result:"
    assert rows == [
        "  line 3: `0.0 <= s <= 1.0` must hold, but got s=1.5.",
        "  line 4: 'k' must be one of 'a', 2, True, but got 'b'.",
        "  line 5: 'n' must be an integer, but got 2.5.",
        "  line 6: 'x' must be a number, but got 'one'.",
        "  line 7: a reward must be one finite number, but got ''.",
        "  line 8: a reward must be one finite number, but got nan.",
        "  line 9: there must be a value for every column, but got none for 'x'.",
        "  line 10: there must be a column for every value, but got ['5'] beyond the last.",
    ]
    assert study.trials == ()


def test_what_is_said_about_a_row_is_not_much_longer_than_a_line(tmp_path: Path) -> None:
    long = "9" * 4000
    with pytest.raises(StudyError) as raised:
        new_study().import_csv(
            written(
                tmp_path / "bad.csv", "s,k,x,n,reward", f"{long},a,1,1,1", f"0.5,a,1,{long},1", f"0.5,a,x{long},1,1"
            )
        )
    _, *rows = str(raised.value).splitlines()
    assert [row[:11] for row in rows] == ["  line 2: `", "  line 3: `", "  line 4: '"]
    assert all("characters cut" in row and len(row) < 600 for row in rows)


def test_columns_with_neither_names_nor_values_are_ignored(tmp_path: Path) -> None:
    study = new_study()
    assert study.import_csv(written(tmp_path / "a.csv", "s,,k,x,n,reward,,", "0.5,,a,1,1,1.0,,", "0.5,,a,1,1,1.0")) == 2
    with pytest.raises(StudyError, match=r"line 2: there must be a column for every value, but got \['7'\] beyond"):
        study.import_csv(written(tmp_path / "b.csv", "s,k,x,n,reward,", "0.5,a,1,1,1.0,,7"))
    with pytest.raises(StudyError, match="with a line of column names, but it is empty"):
        study.import_csv(written(tmp_path / "c.csv", ",,", ",,"))


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("s,k,x,n,reward,note\n0.5,a,1,1,1.0,Müller\n".encode("latin-1"))
    with pytest.raises(StudyError, match=r"latin.csv' must be a CSV file in UTF-8: .*can't decode byte"):
        new_study().import_csv(path)


def test_a_file_in_utf_16(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_bytes("s,k,x,n,reward\n0.5,a,1,1,1.0\n".encode("utf-16-le"))
    with pytest.raises(StudyError, match=r"wide.csv' must be a CSV file in UTF-8, but has NUL bytes .* is it UTF-16"):
        new_study().import_csv(path)


def test_a_nul_byte_in_a_value(tmp_path: Path) -> None:
    path = written(tmp_path / "nul.csv", "s,k,x,n,reward", "0.5,a,1,1,1.0\0")
    with pytest.raises(StudyError, match=r"line 2: a reward must be one finite number, but got '1.0\\x00'"):
        new_study().import_csv(path)


@pytest.mark.parametrize("length", [100_001, 200_000])  # the csv module takes 131,072 characters
def test_a_cell_that_is_too_long(tmp_path: Path, length: int) -> None:
    rows = ["s,k,x,n,reward,note", "0.5,a,1,1,1.0,ok", f'0.5,a,1,1,1.0,"{"long, " * (length // 6 + 1)}"']
    with pytest.raises(StudyError, match="at most 100000 characters, but line 3, column 'note' has more: is a quot"):
        new_study().import_csv(written(tmp_path / "long.csv", *rows))
    with pytest.raises(StudyError, match="but column 2 of the first line has more"):
        new_study().import_csv(written(tmp_path / "wide.csv", f"s,{'k' * length}", "1,2"))


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    path = written(tmp_path / "twice.csv", "s,k,x,n,reward,x", "0.5,a,1,1,1.0,2")
    with pytest.raises(StudyError, match=r"twice.csv' must have one column for 'x', but has several"):
        new_study().import_csv(path)


def test_a_last_row_that_was_cut_off(tmp_path: Path) -> None:
    path = written(tmp_path / "cut.csv", "s,k,x,n,reward,status", "0.5,a,1,1,1.0,completed", "0.5,a,1,1,1.")
    with pytest.raises(StudyError, match="line 3: there must be a value for every column, but got none for 'status'"):
        new_study().import_csv(path)


def test_texts_that_are_not_what_they_seem(tmp_path: Path) -> None:
    space = Space(actions={"x": Real(0, 2000), "k": Categorical(["1", 1, "b"])})
    path = written(tmp_path / "odd.csv", "x,k,reward", "1_000,b,1", "5,1,1")
    with pytest.raises(StudyError) as raised:
        new_study(space=space).import_csv(path)
    assert str(raised.value).splitlines()[1:] == [
        "  line 2: 'x' must be a number, but got '1_000'.",
        "  line 3: a string must stand for one choice, but '1' stands for '1' and 1.",
    ]


def test_a_missing_column(tmp_path: Path) -> None:
    path = written(tmp_path / "short.csv", "s,k,x,reward", "0.5,a,1,1.0")
    with pytest.raises(StudyError, match=r"short.csv' must have a column for every parameter.*but has none for 'n'"):
        new_study().import_csv(path)


def test_rows_of_another_study_keep_their_noise_variances() -> None:
    study, again = new_study(), new_study()
    for trial in study.ask(4):
        if trial.number < 3:
            study.tell(trial, trial.number, noise=0.1 * trial.number)
    assert list(study.observations[0])[-2:] == ["status", "noise"]
    assert again.add_trials(study.observations) == 3
    assert [trial.noise for trial in again.trials] == [trial.noise for trial in study.trials[:3]]


def test_noise_for_some_rows_only(tmp_path: Path) -> None:
    path = written(tmp_path / "noisy.csv", "s,k,x,n,reward,noise", "0.5,a,1,1,1.0,0.1", "0.5,a,1,1,1.0,")
    with pytest.raises(StudyError, match="line 3: `noise` must be given with every reward or with none"):
        new_study().import_csv(path)


def test_noise_unlike_that_of_the_study(tmp_path: Path) -> None:
    study = new_study()
    study.tell(study.ask(), 1.0)
    rows = [f"0.5,a,1,1,1.0,{noise}" for noise in (0.1, "", 0.1)]
    path = written(tmp_path / "noisy.csv", "s,k,x,n,reward,noise", *rows)
    with pytest.raises(StudyError) as raised:
        study.import_csv(path)
    rule = "`noise` must be given with every reward or with none, also of earlier trials."
    assert str(raised.value).splitlines()[1:] == [f"  line 2: {rule}", f"  line 4: {rule}"]
    with pytest.raises(
        RewardError, match=r"with every reward or with none, but got noise=0.1 for trial 1, unlike before"
    ):
        study.add_trial(study.trials[0].state, study.trials[0].action, 1.0, noise=0.1)
    assert len(study.trials) == 1


def test_every_row_with_a_wrong_seed_outcome_or_cost_is_named(tmp_path: Path) -> None:
    space = Space(actions={"x": Real(0, 1)})
    study = Study(space, seeds=[1, 2], outcome_constraints={"wait": AtMost(5)}, cost="learned")
    lines = ["x,seed,reward,outcome:wait,outcome:cost", "0,1,1,2,3", "0,3,1,2,3", "0,1,1,,3", "0,2,1,2,-1", "0,2,1,2,"]
    with pytest.raises(StudyError) as raised:
        study.import_csv(written(tmp_path / "bad.csv", *lines))
    _, *rows = str(raised.value).splitlines()
    assert [row.split(":")[0].strip() for row in rows] == ["line 3", "line 4", "line 5"]
    assert "must be one of the 2 that the study lists, but got seed=3" in rows[0]
    assert "the outcome 'wait' must be told" in rows[1]
    assert "`cost > 0` must hold, but got cost=-1" in rows[2]
    assert study.trials == ()
    assert study.import_csv(written(tmp_path / "good.csv", lines[0], lines[1], lines[5])) == 2


def test_a_parameter_that_is_called_noise(tmp_path: Path) -> None:
    study, path = new_study(space=Space(actions={"noise": Real(0, 1)})), tmp_path / "trials.csv"
    study.tell(study.ask(), 1.0)
    study.to_csv(path)
    assert study.import_csv(path) == 1
    assert study.trials[1].action == study.trials[0].action
    assert study.trials[1].noise is None


def test_what_a_parameter_hides_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    study = new_study(space=Space(actions={"noise": Real(0, 1), "outcome:wait": Real(0, 1)}))
    study.tell(study.ask(), 1.0)
    study.to_csv(tmp_path / "trials.csv")
    assert not caplog.messages
    study.tell(study.ask(), 1.0, outcomes={"wait": 3.0})
    study.to_csv(tmp_path / "trials.csv")
    assert caplog.messages == [
        "The column 'outcome:wait' holds the parameter of this name; what else is recorded under it is left out."
    ]


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
def test_a_csv_table_can_be_written_to_a_pipe() -> None:
    study = Study(Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)}))
    study.add_trial({"s": 0.5}, {"x": 0.25}, 1.0)
    reading, writing = os.pipe()
    with os.fdopen(reading) as end:
        study.to_csv(f"/dev/fd/{writing}")
        os.close(writing)
        assert end.readline().startswith("number,s,x,reward")
