"""Trials, earlier results and tables of a policy as dataframes of several libraries."""

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pandas
import polars
import pytest

from conbo.errors import PointError, SettingError, StudyError
from conbo.policies.policy import Policy
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.study import Study

SPACE = Space(
    states={"s": Real(0, 1), "k": Categorical(["a", 2, True])},
    actions={"x": Real(0.1, 10, log=True), "n": Integer(1, 5)},
)


MIXED = Categorical(["a", 2, True])


def new_study(**settings: Any) -> Study:
    return Study(**{"space": SPACE, "method": "uniform", **settings})


@pytest.fixture(scope="module")
def study() -> Study:
    study = new_study(seed=1)
    for trial in study.ask(8):
        study.tell(trial, float(trial.state["s"]) - float(trial.action["n"]), outcomes={"wait": trial.number / 7})
    study.fail(study.ask(), "lost")
    study.ask()
    return study


@pytest.fixture(scope="module")
def policy(study: Study) -> Policy:
    return study.policy()


def test_all_that_is_recorded_is_in_the_dataframe(study: Study) -> None:
    frame = study.trials_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == [
        *["number", "s", "k", "x", "n", "reward", "status"],
        *["noise", "error", "worker", "attempts", "started", "finished", "late", "outcome:wait"],
    ]
    assert list(frame["status"]) == ["completed"] * 8 + ["failed", "running"]
    assert frame["error"][8] == "lost"
    assert frame["reward"].isna().tolist() == [False] * 8 + [True] * 2
    assert (frame["finished"][:9] >= frame["started"][:9]).all()
    assert frame["k"].tolist() == [trial.state["k"] for trial in study.trials]


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_a_dataframe_brings_its_results_to_another_study(study: Study, backend: str) -> None:
    other = new_study()
    other.ask()
    assert other.add_trials(study.trials_dataframe(backend)) == 8
    assert [trial.number for trial in other.trials] == list(range(9))
    pairs = list(zip(other.trials[1:], study.trials, strict=False))
    assert len(pairs) == 8
    for mine, theirs in pairs:
        assert (mine.state, mine.action, mine.outcomes) == (theirs.state, theirs.action, theirs.outcomes)
        assert [type(value) for value in mine.state.values()] == [type(value) for value in theirs.state.values()]


def test_the_rows_of_observations_are_results_too(study: Study) -> None:
    other = new_study()
    assert other.add_trials(study.observations) == 8
    assert other.trials == study.trials[:8]
    assert other.add_trials([]) == 0


def test_numbers_with_gaps_and_known_noise() -> None:
    frame = pandas.DataFrame(
        {
            "s": [0.5, 0.25],
            "k": ["a", "2"],  # a text stands for the choice that is written so
            "x": [1, 2],
            "n": pandas.array([3, None], dtype="Int64"),
            "reward": [1.0, 2.0],
            "noise": [0.1, 0.2],
            "status": ["completed", "failed"],
            7: ["names of other columns", "do not matter"],
        }
    )
    study = new_study()
    assert study.add_trials(frame) == 1
    assert (study.trials[0].action, study.trials[0].noise) == ({"x": 1.0, "n": 3}, 0.1)
    frame["status"] = "completed"
    with pytest.raises(StudyError, match=r"nothing was imported from the dataframe.*\n  row 2: 'n' must be a number"):
        study.add_trials(frame)
    assert len(study.trials) == 1


def test_rows_of_a_list_may_have_different_keys() -> None:
    study, row = new_study(), {"s": 0.5, "k": "a", "x": 1.0, "n": 3, "reward": 1.0}
    assert study.add_trials([row, {**row, "outcome:wait": 4.2, "remark": "late"}, {**row, "status": "failed"}]) == 2
    assert [trial.measured for trial in study.trials] == [{}, {"wait": 4.2}]
    lacking = {name: cell for name, cell in row.items() if name != "x"}
    for rows in ([row, lacking], [lacking, row]):
        with pytest.raises(StudyError, match=f"row {rows.index(lacking) + 1}: 'x' must be a number, but got None"):
            study.add_trials(rows)
    with pytest.raises(
        StudyError, match="row 2: `noise` must be given with every reward or with none, also of earlier"
    ):
        study.add_trials([row, {**row, "noise": 0.1}])
    with pytest.raises(StudyError, match=r"row 1: `noise` must be given with every reward or with none\.$"):
        new_study().add_trials([row, {**row, "noise": 0.1}])
    assert len(study.trials) == 2


def test_statuses_that_are_remarks_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    row = {"s": 0.5, "k": "a", "x": 1.0, "n": 3, "reward": 1.0}
    remarks = [f"seen at {i}" for i in range(1000)]
    assert new_study().add_trials([row, *({**row, "status": remark} for remark in [*remarks, remarks[7]])]) == 1
    (message,) = caplog.messages
    assert message.startswith("Rows of the list whose status is not 'completed' were skipped: 2 'seen at 7', 1 'seen")
    assert "characters cut" in message
    assert len(message) < 400


def test_results_that_are_none() -> None:
    with pytest.raises(SettingError, match="this must be a dataframe, but got dict"):
        new_study().add_trials({"s": 1})
    with pytest.raises(StudyError, match=r"the dataframe must have a column .* but has none for 'k'"):
        new_study().add_trials(polars.DataFrame({"s": [0.5]}))
    with pytest.raises(StudyError, match="the list must have columns whose names are text, but got 7"):
        new_study().add_trials([{"s": 0.5, "k": "a", "x": 1, "n": 3, "reward": 1.0, 7: 8}])
    with pytest.raises(SettingError, match="`backend` must be a library of dataframes like 'pandas', but got 'excel'"):
        new_study().trials_dataframe("excel")
    for names in (["s", "s"], [1, "1"]):
        with pytest.raises(SettingError, match="the columns of a dataframe must have different names"):
            new_study().add_trials(pandas.DataFrame([[0.5, 0.5]], columns=names))


def test_choices_that_fit_no_column_of_polars_become_texts() -> None:
    study = new_study(space=Space(states={"s": Real(0, 1)}, actions={"k": Categorical([1, 10**80]), "m": MIXED}))
    for choice in (1, 10**80):
        study.add_trial({"s": 0.5}, {"k": choice, "m": "a"}, 1.0)
    assert study.trials_dataframe("polars")["k"].to_list() == ["1", "1" + 80 * "0"]
    other = new_study(space=study.space)
    other.add_trials(study.trials_dataframe("polars"))
    assert other.trials == study.trials


def test_other_columns_may_hold_arrays(policy: Policy) -> None:
    traces = pandas.Series([np.arange(3), pandas.DataFrame({"t": [0.5]})])
    states = pandas.DataFrame({"s": [0.25, 0.75], "k": "a", "trace": traces})
    assert new_study().add_trials(states.assign(x=0.5, n=2, reward=1.0)) == 2
    assert policy.table(states)["trace"].to_list()[0] is traces[0]


@pytest.mark.parametrize("column", ["s", "k", "reward", "noise", "outcome:wait"])
@pytest.mark.parametrize("cell", [np.arange(3), [1, 2]])
def test_a_column_that_is_read_holds_no_arrays(column: str, cell: Any) -> None:
    frame = pandas.DataFrame({"s": [0.25, 0.75], "k": "a", "x": 0.5, "n": 2, "reward": 1.0})
    with pytest.raises(StudyError, match=rf"\n  row 2: .* must be .*, but got {re.escape(repr(cell))}"):
        new_study().add_trials(frame.assign(**{column: pandas.Series([cell, cell])}))


def test_rows_whose_status_is_an_array_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    frame = pandas.DataFrame({"s": [0.25], "k": "a", "x": 0.5, "n": 2, "reward": 1.0})
    assert new_study().add_trials(frame.assign(status=pandas.Series([np.arange(3)]))) == 0
    assert "were skipped: 1 '[0 1 2]'." in caplog.text


def test_whole_choices_among_floats_become_floats_in_polars() -> None:
    space = Space(states={"k": Categorical([1, 2.5])}, actions={"x": Categorical([2**53 + 1, 0.5])})
    study, other = Study(space, method="uniform"), Study(space, method="uniform")
    for k, x in ((1, 2**53 + 1), (2.5, 0.5)):
        study.add_trial({"k": k}, {"x": x}, 0.0)
    frame = study.trials_dataframe("polars")
    assert frame["k"].to_list() == [1.0, 2.5]
    assert frame["x"].to_list() == ["9007199254740993", "0.5"]  # no float is equal to the integer
    other.add_trials(frame)
    assert [trial.point for trial in other.trials] == [trial.point for trial in study.trials]


def test_a_table_of_actions_of_several_types() -> None:
    space = Space(states={"s": Categorical([0, 1, 2])}, actions={"k": MIXED})
    study = new_study(space=space)
    for place in range(3):
        for choice, other in (("a", 0), (2, 1), (True, 2)):
            study.add_trial({"s": place}, {"k": choice}, -100.0 * abs(place - other))
    table = study.policy().table(polars.DataFrame({"s": [0, 1, 2]}))
    assert table["k"].to_list() == ["a", "2", "True"]


@pytest.mark.parametrize("library", [pandas, polars])
def test_a_table_of_actions_has_the_rows_of_its_states(policy: Policy, library: Any) -> None:
    points = [{"s": 0.1, "k": "a"}, {"s": 0.9, "k": "a"}]
    states = library.DataFrame({"day": ["Mon", "Tue"], "s": [0.1, 0.9], "k": ["a", "a"]})
    table = policy.table(states)
    assert type(table) is library.DataFrame
    assert list(table.columns) == ["day", "s", "k", "x", "n", "predicted_reward", "predicted_std"]
    rows = zip(*(table[name].to_list() for name in table.columns[3:]), strict=True)
    expected = [(p.action["x"], p.action["n"], p.mean, p.std) for p in policy.predict_many(points)]
    assert list(rows) == expected
    assert list(states.columns) == ["day", "s", "k"]


def test_the_index_of_a_table_is_kept(policy: Policy) -> None:
    states = pandas.DataFrame({"s": [0.1, 0.9], "k": ["a", 2]}, index=["Mon", "Tue"])
    assert list(policy.table(states).index) == ["Mon", "Tue"]
    assert len(policy.table(states[:0])) == 0


def test_states_of_a_table_must_be_in_the_space(policy: Policy) -> None:
    with pytest.raises(PointError, match=r"must have a column for every state, but has none for \['k'\]"):
        policy.table(pandas.DataFrame({"s": [0.5]}))
    outside = pandas.DataFrame({"s": [1.5], "k": ["a"]})
    with pytest.raises(PointError, match=r"`0.0 <= s <= 1.0` must hold, but got s=1.5"):
        policy.table(outside)
    assert len(policy.table(outside, extrapolate=True)) == 1


@pytest.mark.parametrize("package", ["narwhals", "pandas"])
def test_without_the_extra(package: str) -> None:
    code = f"""
import re
import sys
sys.modules[{package!r}] = None  # as if it were not installed
import conbo
study = conbo.Study(conbo.Space(actions={{"x": conbo.Real(0, 1)}}))
try:
    study.trials_dataframe()
except conbo.errors.ConboError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == f"dataframes need {package}, which is not installed: pip install 'conbo[pandas]'\n"
