"""Constrained outcomes in study files and commands."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import conbo as library
from conbo.spaces import Point

Conbo = Callable[..., Result]

LIMITS = """
[outcome_constraints]
wait = { at_most = 0.5 }
"""


@pytest.fixture
def limited(folder: Path) -> Path:
    file = folder / "study.toml"
    file.write_text(f'confidence = 0.9\nfailures = "ignore"\n{file.read_text()}{LIMITS}')
    return file


def test_a_study_file_and_its_commands(conbo: Conbo, limited: Path) -> None:
    conbo("ask", "-n", "3", "-o", "table.csv")
    header, *rows = Path("table.csv").read_text().splitlines()
    assert header == "number,demand,stock,reward,outcome:wait"
    needed = "the outcome 'wait' must be told with every reward"
    assert needed in conbo("tell", "0", "1.5", code=1).stderr
    conbo("tell", "0", "1.5", "--outcome", "wait=0.2")
    Path("table.csv").write_text("\n".join([header, *(f"{row.rstrip(',')},2.5,0.1" for row in rows[1:])]))
    conbo("tell", "--file", "table.csv")
    study = library.open_study("study.db")
    assert [trial.measured["wait"] for trial in study.trials] == [0.2, 0.1, 0.1]
    assert study.outcome_constraints == {"wait": library.AtMost(0.5)}
    answer = conbo("policy", "--state", "demand=50").stdout
    assert "keeps constraints" in answer
    record = json.loads(conbo("policy", "--state", "demand=50", "--json").stdout)
    assert 0 <= record["probability"] <= 1


def test_limits_and_costs_are_shown(conbo: Conbo, limited: Path) -> None:
    limited.write_text(f'constraints = ["stock <= 120 + 0.1 * demand"]\ncost = "learned"\n{limited.read_text()}')
    conbo("ask")
    for verb in ("check", "status"):
        text = conbo(verb).stdout
        assert "\nlimit" in text
        assert "  stock <= 120 + 0.1 * demand\n" in text
        assert "  wait <= 0.5, learned, with a probability of at least 0.9\n" in text
        assert "\ncost " in text


def within(state: Point, action: Point) -> bool:
    return True


def test_limits_that_are_functions_are_shown_by_their_names(conbo: Conbo, folder: Path) -> None:
    space = library.Space(actions={"a": library.Real(0, 9)}, feasible=within)
    library.Study(space, method="uniform", storage="own.db", outcome_constraints={"wait": library.AtLeast(2)})
    text = conbo("status", "own.db").stdout
    assert f"function {__name__}.within\n" in text
    assert "wait >= 2, learned, with a probability of at least 0.95\n" in text


def test_the_best_reward_is_of_a_trial_that_satisfies_the_constraints(conbo: Conbo, limited: Path) -> None:
    conbo("ask", "-n", "3")
    conbo("tell", "0", "7", "--outcome", "wait=0.6")
    assert "best reward  none, because all completed trials break a constraint" in conbo("status").stdout
    conbo("tell", "1", "5", "--outcome", "wait=0.5")
    conbo("tell", "2", "4", "--outcome", "wait=0.1")
    assert "best reward  5, of trial 1" in conbo("status").stdout


def test_the_best_reward_is_not_of_an_infeasible_import(conbo: Conbo, folder: Path) -> None:
    space = library.Space(actions={"a": library.Integer(0, 9), "b": library.Integer(0, 9)}, constraints=["a + b <= 8"])
    study = library.Study(space, method="uniform", storage="limits.db")
    study.add_trial({}, {"a": 9, "b": 9}, 18.0)
    assert "best reward  none, because all completed trials break a constraint" in conbo("status", "limits.db").stdout
    study.add_trial({}, {"a": 4, "b": 4}, 8.0)
    assert "best reward  8, of trial 1" in conbo("status", "limits.db").stdout


def test_a_row_without_its_outcome_is_told_before_any_is_recorded(conbo: Conbo, limited: Path) -> None:
    conbo("ask", "-n", "2")
    Path("table.csv").write_text("number,reward,outcome:wait\n0,1.5,0.2\n1,2.5,\n")
    assert "the outcome 'wait' must be told" in conbo("tell", "--file", "table.csv", code=1).stderr
    assert {trial.status for trial in library.open_study("study.db").trials} == {"running"}


def test_a_learned_cost_is_insisted_on(conbo: Conbo, folder: Path) -> None:
    file = folder / "study.toml"
    file.write_text(f'cost = "learned"\n{file.read_text()}')
    conbo("ask", "-n", "2", "-o", "table.csv")
    header, *rows = Path("table.csv").read_text().splitlines()
    assert header == "number,demand,stock,reward,outcome:cost"
    needed = "a `cost` must be told with every reward where the study learns it, but got none"
    assert needed in conbo("tell", "0", "1.5", code=1).stderr
    assert "`cost > 0` must hold, but got cost=-2" in conbo("tell", "0", "1.5", "--cost", "-2", code=1).stderr
    conbo("tell", "0", "1.5", "--cost", "2")
    Path("table.csv").write_text(f"{header}\n{rows[1].rstrip(',')},2.5,\n")
    assert needed in conbo("tell", "--file", "table.csv", code=1).stderr
    Path("table.csv").write_text(f"{header}\n{rows[1].rstrip(',')},2.5,3\n")
    conbo("tell", "--file", "table.csv")
    assert [trial.measured["cost"] for trial in library.open_study("study.db").trials] == [2.0, 3.0]


@pytest.mark.parametrize(
    ("setting", "outcome"), [(f"{LIMITS}\n[states]", "wait"), ('cost = "learned"\n[states]', "cost")]
)
def test_a_program_cannot_tell_other_outcomes(conbo: Conbo, folder: Path, setting: str, outcome: str) -> None:
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("[states]", setting))
    run = ["--command", "echo {stock}", "-n", "1"]
    needed = f"must need nothing but rewards, but this one also needs '{outcome}'"
    assert needed in conbo("run", *run, code=1).stderr
    assert not (folder / "study.db").exists()
    conbo("ask")
    for begun in (["run", "study.db"], ["worker"], ["worker", "study.db"]):
        assert needed in conbo(*begun, *run, code=1).stderr


@pytest.mark.parametrize("verb", [["validate"], ["compare", "--action", "stock=60"]])
def test_a_program_cannot_prove_constraints(conbo: Conbo, limited: Path, verb: list[str]) -> None:
    conbo("ask")
    conbo("tell", "0", "1.5", "--outcome", "wait=0.2")
    refused = conbo(*verb, "--command", "echo {stock}", code=1).stderr
    assert "must need nothing but rewards, but this one also needs 'wait'" in refused


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("{ at_most = 1, at_least = 0 }", "must have either `at_most` or `at_least`"),
        ("{ about = 1 }", "unknown key `outcome_constraints.wait.about`"),
        ("{ at_most = 'much' }", "the bound of an outcome must be a number"),
        ("5", "`outcome_constraints.wait` must be a table"),
    ],
)
def test_limits_that_cannot_be(conbo: Conbo, limited: Path, wrong: str, reason: str) -> None:
    limited.write_text(limited.read_text().replace("{ at_most = 0.5 }", wrong))
    assert reason in conbo("check", code=1).stderr
