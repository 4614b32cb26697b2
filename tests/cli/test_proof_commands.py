"""validate and compare."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import conbo as library

Conbo = Callable[..., Result]

RULES = """
def today(state):
    return {"stock": 1.2 * state["demand"]}
"""


@pytest.fixture
def learned(folder: Path, conbo: Conbo) -> Path:
    conbo("run", "simulator.py:profit", "-n", "12")
    (folder / "rules.py").write_text(RULES)
    (folder / "today.csv").write_text("demand,stock\n20,30\n90,80\n")
    (folder / "states.csv").write_text("demand,other\n20,x\n90,y\n")
    return folder


def test_validate(conbo: Conbo, learned: Path) -> None:
    text = conbo("validate", "simulator.py:profit", "-n", "8").stdout
    record = json.loads(conbo("validate", "simulator.py:profit", "--states", "states.csv", "-n", "8", "--json").stdout)
    first, second = library.open_study(learned / "study.db").validations()
    assert text == f"{first}\n"
    assert record == json.loads(json.dumps(second.to_dict()))
    assert [check["state"]["demand"] for check in record["checks"]] == [20, 20, 90, 90]
    assert "failed in all states" in conbo("validate", "simulator.py:broken", "-n", "4", code=1).stderr
    assert "What to evaluate is missing" in conbo("validate", code=2).stderr
    (learned / "wrong.csv").write_text("demand,stock\n20,30\n900,80\n")
    for command in (["validate", "simulator.py:profit", "--states", "wrong.csv"], ["compare", "wrong.csv"]):
        assert "line 3: `10.0 <= demand <= 100.0` must hold" in conbo(*command, code=1).stderr


def test_compare(conbo: Conbo, learned: Path) -> None:
    study = library.open_study(learned / "study.db")
    by_model = conbo("compare", "rules.py:today", "--label", "the old way").stdout
    rule = lambda state: {"stock": 1.2 * state["demand"]}  # noqa: E731
    assert by_model == f"{study.compare(rule, name='the old way')}\n"
    rows = [{"demand": 20, "stock": 30}, {"demand": 90, "stock": 80}]
    assert conbo("compare", "today.csv").stdout == f"{study.compare(rows)}\n"
    assert conbo("compare", "--action", "stock=60").stdout == f"{study.compare({'stock': 60})}\n"
    bare = conbo("compare", "--action", "stock", code=2).stderr
    assert "An action must be given as NAME=VALUE, but got 'stock'" in bare
    twice = conbo("compare", "--action", "stock=60", "--action", "stock=70", code=2).stderr
    assert "An action must have every name once, but got 'stock' twice." in twice
    measured = conbo("compare", "today.csv", "--objective", "simulator.py:profit", "-n", "8", "--json").stdout
    (found,) = study.validations()
    assert json.loads(measured)["validation"] == json.loads(json.dumps(found.to_dict()))
    conbo("policy", "--save", "policy.json")
    assert "which may be nothing" in conbo("compare", "policy.json").stdout
    once = conbo("compare", "today.csv", "--objective", "a:b", "--command", "c", code=2).stderr
    assert "What to evaluate must be given once" in once


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("compare today.csv --states states.csv", "--states needs --objective or --command."),
        ("compare today.csv -n 20", "--evaluations needs --objective or --command."),
        ("compare --action stock=60 -w 1", "--workers needs --objective or --command."),
        ("compare today.csv --timeout 5", "--timeout needs --command."),
        ("compare today.csv --objective simulator.py:profit --timeout 5", "--timeout needs --command."),
        ("validate simulator.py:profit --timeout 5", "--timeout needs --command."),
    ],
)
def test_options_without_effect_are_refused(conbo: Conbo, learned: Path, words: str, needed: str) -> None:
    assert needed in conbo(*words.split(), code=2).stderr
    assert library.open_study("study.db").validations() == []


def test_the_help_says_how_many_evaluations_are_needed(conbo: Conbo, learned: Path) -> None:
    assert "in a space with states, at least 4" in " ".join(conbo("validate", "--help").stdout.split())
    refused = conbo("validate", "simulator.py:profit", "-n", "3", code=2).stderr
    assert "-n must be at least 4 in a space with states, but got 3." in refused
    measuring = ("compare", "--action", "stock=60", "--objective", "simulator.py:profit")
    assert "3 is not in the range x>=4." in conbo(*measuring, "-n", "3", code=2).stderr
    conbo(*measuring, "-n", "4")
    (learned / "bare.toml").write_text(
        'method = "uniform"\n[actions]\nstock = { type = "real", low = 0, high = 150 }\n'
    )
    (learned / "flat.py").write_text("def reward(state, action):\n    return action['stock']\n")
    conbo("run", "bare.toml", "flat.py:reward", "-n", "3")
    conbo("validate", "bare.toml", "flat.py:reward", "-n", "2")
