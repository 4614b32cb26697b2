"""status, policy, plot, report, methods, problems and demo."""

import csv
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pandas
import pytest
from click.testing import Result

import conbo as library
from conbo.cli.view_commands import PLOTS
from conbo.errors import SettingError
from conbo.method_table import METHODS
from conbo.rounding import with_margin

Conbo = Callable[..., Result]


@pytest.fixture
def learned(folder: Path) -> library.Study:
    """The study of the folder, with a few evaluations."""
    from conbo.cli.study_file import read_study_file

    study = read_study_file(folder / "study.toml").study()
    study.run(lambda s, x: -abs(s["demand"] - x["stock"]), evaluations=12, progress=False)
    study.fail(study.ask(), "it broke")
    return study


def test_status(conbo: Conbo, learned: library.Study) -> None:
    learned.fail(learned.ask())  # a canceled trial is no failure
    text = conbo("status").stdout
    assert "default, maximize by uniform, seed 0" in text
    assert "demand: real from 10 to 100" in text
    assert "12 completed, 0 running, 2 failed" in text
    assert "the last was trial 12: it broke" in text
    record = json.loads(conbo("status", "study.db", "--json").stdout)
    assert (record["completed"], record["running"], record["failed"]) == (12, 0, 2)
    assert record["actions"][0]["name"] == "stock"
    assert "policy_value" not in record
    best = max(trial.reward or 0 for trial in learned.trials if trial.status == "completed")
    assert f"{best:.6g}, of trial" in text
    assert "conbo status --model" in text


def test_status_of_a_study_with_functions_of_the_user(conbo: Conbo, folder: Path) -> None:
    space = library.Space(
        {"demand": library.Real(10, 100)}, {"stock": library.Real(0, 150)}, feasible=lambda state, action: True
    )
    library.Study(space, storage=folder / "own.db", cost=lambda state, action: 1.0).ask()
    assert "0 completed, 1 running, 0 failed" in conbo("status", "own.db").stdout
    assert "stock: real from 0 to 150" in conbo("status", "own.db").stdout


def test_status_with_a_model(conbo: Conbo, learned: library.Study) -> None:
    record = json.loads(conbo("status", "--model", "--json").stdout)
    summary = learned.summary()
    assert (record["policy_value"], record["value_of_state"]) == (summary.policy_value, summary.value_of_state)
    assert conbo("status", "--model").stdout.endswith(f"\n\n{summary}\n")


def test_status_before_the_first_reward_or_the_first_run(conbo: Conbo, folder: Path) -> None:
    for verb in ("status", "policy", "report"):
        assert "`conbo run study.toml simulator.py:reward` begins it" in conbo(verb, code=1).stderr
    assert not (folder / "study.db").exists()
    conbo("ask")
    assert "nothing learned yet" in conbo("status").stdout
    assert json.loads(conbo("status", "--model", "--json").stdout)["policy_value"] is None
    for verb in ("policy", "report"):
        assert "there is none yet: run an objective, or tell a reward" in conbo(verb, code=1).stderr


def test_policy_of_a_state(conbo: Conbo, learned: library.Study) -> None:
    wanted = learned.policy().predict({"demand": 50})
    record = json.loads(conbo("policy", "--state", "demand=50", "--json").stdout)
    assert record == {"action": wanted.action, "mean": wanted.mean, "std": wanted.std}
    text = conbo("policy", "--state", "demand=50").stdout
    assert text.split()[:2] == ["stock", f"{wanted.action['stock']:.6g}"]
    expected = with_margin(wanted.mean, wanted.std)
    assert f"{expected}  (± is 1.96 standard deviations of the mean, without noise)" in text
    assert "'demand' is missing" in conbo("policy", code=1).stderr
    assert "must hold, but got demand=500" in conbo("policy", "--state", "demand=500", code=1).stderr
    edge = json.loads(conbo("policy", "--state", "demand=500", "--extrapolate", "--json").stdout)
    assert edge["action"] == learned.policy()({"demand": 100})


def test_an_action_has_the_digits_that_its_range_needs(conbo: Conbo, folder: Path) -> None:
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("low = 0, high = 150", "low = 1000.0001, high = 1000.0009"))
    (folder / "earlier.csv").write_text("demand,stock,reward\n20,1000.0002,1\n50,1000.0004,3\n80,1000.0008,2\n")
    conbo("import", "earlier.csv")
    asked = "policy", "--state", "demand=50"
    action = json.loads(conbo(*asked, "--json").stdout)["action"]["stock"]
    assert float(conbo(*asked).stdout.split()[1]) == pytest.approx(action, abs=8e-8, rel=0)


def test_policy_of_a_file_of_states(conbo: Conbo, learned: library.Study, folder: Path) -> None:
    (folder / "states.csv").write_text("shop,demand\nnorth,45\nsouth,80\n")
    conbo("policy", "--states", "states.csv", "-o", "orders.csv")
    with (folder / "orders.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["shop", "demand", "stock", "predicted_reward", "predicted_std"]
    assert [(row["shop"], row["demand"]) for row in rows] == [("north", "45"), ("south", "80")]
    wanted = learned.policy().many([{"demand": 45}, {"demand": 80}])
    assert [float(row["stock"]) for row in rows] == pytest.approx([action["stock"] for action in wanted])
    assert conbo("policy", "--states", "states.csv").stdout == (folder / "orders.csv").read_text()
    (folder / "states.json").write_text('[{"demand": 45}]')
    answers = json.loads(conbo("policy", "--states", "states.json", "--json").stdout)
    assert answers[0]["stock"] == pytest.approx(float(rows[0]["stock"]))
    (folder / "states.json").write_text('[{"demand": 45}, {"shop": "south", "demand": 80}]')
    header, *lines = conbo("policy", "--states", "states.json").stdout.splitlines()
    assert header == "demand,stock,predicted_reward,predicted_std,shop"
    assert [line.split(",")[-1] for line in lines] == ["", "south"]
    (folder / "states.csv").write_text("demand\n45\n80,\n")
    assert conbo("policy", "--states", "states.csv").stdout.startswith("demand,stock,predicted_reward,predicted_std\n")
    (folder / "wrong.csv").write_text("demand,shop,demand\n45,north,80\n")
    refused = conbo("policy", "--states", "wrong.csv", code=1).stderr
    assert "'wrong.csv' must have one column for 'demand', but has several." in refused
    for column in ("stock", "predicted_std"):
        (folder / "wrong.csv").write_text(f"{column},demand\n7,45\n")
        refused = conbo("policy", "--states", "wrong.csv", code=1).stderr
        assert f"'wrong.csv' must not have a column that the policy adds, but has '{column}'." in refused

    (folder / "wrong.csv").write_text("shop\nnorth\n")
    assert "'demand' is missing" in conbo("policy", "--states", "wrong.csv", code=1).stderr
    (folder / "wrong.csv").write_text("shop,demand\nnorth,45\n\nsouth,800\n")
    assert "line 4: `10.0 <= demand <= 100.0` must hold" in conbo("policy", "--states", "wrong.csv", code=1).stderr


def test_states_in_an_answer_are_numbers(conbo: Conbo, learned: library.Study, folder: Path) -> None:
    (folder / "states.csv").write_text("demand,shop\n45,7\n80.5,8\n")
    for more in ([], ["--extrapolate"]):
        conbo("policy", "--states", "states.csv", "-o", "orders.json", *more)
        rows = json.loads((folder / "orders.json").read_text())
        assert [(row["demand"], row["shop"]) for row in rows] == [(45, "7"), (80.5, "8")]


def test_no_column_of_a_file_of_states_is_lost(conbo: Conbo, learned: library.Study, folder: Path) -> None:
    (folder / "states.csv").write_text("demand,,\n45,a,b\n")
    refused = conbo("policy", "--states", "states.csv", code=1).stderr
    assert "'states.csv' must have at most one column without a name, but has 2." in refused
    (folder / "states.csv").write_text("demand,\n45,a\n")
    assert conbo("policy", "--states", "states.csv").stdout.splitlines()[1].startswith("45,a,")
    (folder / "states.csv").write_text("demand,, \n45,,\n50\n")  # nothing to lose
    assert conbo("policy", "--states", "states.csv").stdout.startswith("demand,stock,")


def test_extrapolation_names_rows_that_are_no_state(conbo: Conbo, learned: library.Study, folder: Path) -> None:
    (folder / "states.csv").write_text("demand\n450\nmuch\n-7\nnan\n")
    refused = conbo("policy", "--states", "states.csv", "--extrapolate", code=1).stderr
    assert "must have no wrong row, but has 2:\n  line 3: 'demand' must be a number, but got 'much'." in refused
    assert "\n  line 5: `10.0 <= demand <= 100.0` must hold, but got demand=nan.\n" in refused
    (folder / "states.csv").write_text("demand\n450\n100\n")
    far, edge = json.loads(conbo("policy", "--states", "states.csv", "--extrapolate", "--json").stdout)
    assert far == {**edge, "demand": 450}


@pytest.mark.skipif(find_spec("openpyxl") is None, reason="needs openpyxl")
def test_nested_values_are_text_in_a_spreadsheet(conbo: Conbo, learned: library.Study, folder: Path) -> None:
    (folder / "states.json").write_text('[{"demand": 45, "shop": {"town": "north"}, "open": true}]')
    conbo("policy", "--states", "states.json", "-o", "orders.xlsx")
    import openpyxl

    _, row, *_ = openpyxl.load_workbook(folder / "orders.xlsx").active.values
    assert row[:3] == (45, "{'town': 'north'}", True)


def test_a_parameter_with_the_name_of_an_added_column(conbo: Conbo, folder: Path) -> None:
    space = library.Space({"predicted_std": library.Real(0, 1)}, {"predicted_reward": library.Real(0, 1)})
    study = library.Study(space, method="uniform", storage=folder / "named.db")
    study.run(lambda s, x: x["predicted_reward"] * s["predicted_std"], 3, progress=False)
    (folder / "states.csv").write_text("predicted_std\n0.5\n")
    refused = conbo("policy", "named.db", "--states", "states.csv", code=1).stderr
    assert "a parameter must not have the name of a column that is added, but has 'predicted_" in refused
    with pytest.raises(SettingError, match="the name of a column that is added, but has 'predicted_reward'"):
        study.policy().table(pandas.DataFrame({"predicted_std": [0.5]}))


def test_a_state_and_a_file_of_states_exclude_each_other(conbo: Conbo, learned: library.Study, folder: Path) -> None:
    assert "--output needs --states." in conbo("policy", "--state", "demand=50", "-o", "orders.csv", code=2).stderr
    (folder / "states.csv").write_text("demand\n45\n")
    both = conbo("policy", "--state", "demand=50", "--states", "states.csv", code=2).stderr
    assert "--states reads the states from a file: leave --state out." in both


def test_a_saved_policy_answers_without_the_study(conbo: Conbo, learned: library.Study, folder: Path) -> None:
    before = conbo("policy", "--save", "policy.json", "--state", "demand=50", "--json").stdout
    assert conbo("policy", "--save", "policy.json").stdout == ""
    (folder / "study.db").unlink()
    after = json.loads(conbo("policy", "policy.json", "--state", "demand=50", "--json").stdout)
    assert after["action"] == pytest.approx(json.loads(before)["action"])


def test_a_policy_is_saved_as_json_and_never_replaces_its_study(
    conbo: Conbo, learned: library.Study, folder: Path
) -> None:
    before = {name: (folder / name).read_bytes() for name in ("study.db", "study.toml")}
    for name in before:
        refused = conbo("policy", "--save", name, code=1).stderr
        assert f"a policy must be written as .json, but got '{name}'." in refused
    assert {name: (folder / name).read_bytes() for name in before} == before
    missing = conbo("policy", "--save", "new/policy.json", code=1).stderr
    assert "a policy must be written to a folder that exists, but 'new' does not." in missing
    conbo("policy", "--save", "POLICY.JSON")
    assert "stock" in conbo("policy", "POLICY.JSON", "--state", "demand=50").stdout
    conbo("policy", "POLICY.JSON", "--save", "copy.json")
    (folder / "study.db").rename("study.json")
    (folder / "study.toml").write_text((folder / "study.toml").read_text().replace("study.db", "study.json"))
    refused = conbo("policy", "--save", "study.json", code=1).stderr
    assert "a file must not replace a database, but 'study.json' is one." in refused


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--states states.json --save states.json", "--states and --save"),
        ("--states states.json --save out/../p.json -o p.json", "--output and --save"),
        ("--states states.json -o states.json", "--states and --output"),
        ("policy.json --states states.json -o policy.json", "the policy and --output"),
    ],
)
def test_a_policys_files_are_different(
    conbo: Conbo, learned: library.Study, folder: Path, arguments: str, names: str
) -> None:
    (folder / "out").mkdir()
    learned.policy().save(folder / "policy.json")
    (folder / "states.json").write_text('[{"demand": 50}]')
    before = {path: path.read_bytes() for path in folder.glob("*.json")}
    refused = conbo("policy", *arguments.split(), code=2).stderr
    assert f"{names} must be different files, but both are" in refused
    assert {path: path.read_bytes() for path in folder.glob("*.json")} == before


def test_the_kinds_of_plots_are_those_of_the_library() -> None:
    from conbo import plots

    assert set(PLOTS) == {name.replace("_", "-") for name in plots.__all__} - {"save"}


def test_plot(conbo: Conbo, learned: library.Study, folder: Path) -> None:
    assert conbo("plot", "policy-map").stdout == "Wrote policy-map.html.\n"
    assert "<html" in (folder / "policy-map.html").read_text()[:200]
    conbo("plot", "study.db", "state-coverage", "-o", "coverage.png")
    assert (folder / "coverage.png").read_bytes().startswith(b"\x89PNG")
    assert "KIND must be one of acquisition" in conbo("plot", "policy_map", code=2).stderr
    assert "must be saved as .png" in conbo("plot", "policy-map", "-o", "x.gif", code=1).stderr


@pytest.mark.parametrize("picture", ["study.png", "study.html"])
def test_a_picture_replaces_no_database(conbo: Conbo, folder: Path, picture: str) -> None:
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("study.db", picture))
    conbo("run", "simulator.py:profit", "-n", "2")
    refused = conbo("plot", "state-coverage", "-o", picture, code=1).stderr
    assert f"a file must not replace a database, but '{picture}' is one." in refused
    assert len(library.open_study(picture).trials) == 2


def test_report(conbo: Conbo, learned: library.Study, folder: Path) -> None:
    assert conbo("report", "-o", "page.html").stdout == "Wrote page.html.\n"
    assert "<html" in (folder / "page.html").read_text()[:500]
    assert "must be written as .html" in conbo("report", "-o", "page.pdf", code=1).stderr
    refused = conbo("report", "-o", "nowhere/page.html", code=1).stderr
    assert "to a folder that exists, but 'nowhere' does not" in refused
    assert not (folder / "page.pdf").exists()


def test_methods(conbo: Conbo) -> None:
    assert [line.split()[0] for line in conbo("methods").stdout.splitlines()] == list(METHODS)
    assert json.loads(conbo("methods", "--json").stdout) == dict(library.methods())
    assert "Pearce & Branke (2018)" in conbo("methods", "revi").stdout
    assert json.loads(conbo("methods", "scot", "--json").stdout)["needs"] == "finitely many states"
    assert json.loads(conbo("methods", "gp-c-ocba", "--json").stdout)["needs"] == "finitely many states and actions"
    assert "unknown method 'cnbo': did you mean" in conbo("methods", "cnbo", code=1).stderr


def test_the_settings_of_a_method(conbo: Conbo) -> None:
    lines = conbo("methods", "--show", "conbo").stdout.splitlines()
    for line in (
        "proposal: Maximizer",
        "      n_z: 5",
        "      n_states: 20",
        "  starts: 6",
        "  profile: auto",
        "batch: 1",
    ):
        assert line in lines
    record = json.loads(conbo("methods", "--show", "knn", "--json").stdout)
    assert record["settings"]["policy"] == {"type": "NearestNeighbors", "k": 10}
    assert record["settings"]["uses_model"] is False
    assert "--show needs the NAME" in conbo("methods", "--show", code=2).stderr


def test_the_summaries_of_problems_are_the_first_lines_of_their_docstrings() -> None:
    first_lines = {
        name: getattr(library.problems, name).__doc__.partition("\n")[0] for name in library.problems.SUMMARIES
    }
    assert first_lines == library.problems.SUMMARIES
    assert {*library.problems.SUMMARIES} < {*library.problems.__all__}


def test_problems(conbo: Conbo) -> None:
    assert "branin" in json.loads(conbo("problems", "--json").stdout)
    assert "assemble_to_order" in conbo("problems").stdout
    text = conbo("problems", "branin:noise=2").stdout
    assert "s: real from -5 to 10" in text
    assert "standard deviation 2" in text
    assert json.loads(conbo("problems", "branin", "--json").stdout)["states"][0]["name"] == "s"
    assert "unknown problem 'branni': did you mean 'branin'?" in conbo("problems", "branni", code=1).stderr


def test_demo(conbo: Conbo, tmp_path: Path) -> None:
    picture, storage = tmp_path / "demo.png", tmp_path / "demo.db"
    arguments = ["--method", "uniform", "-n", "10", "--picture", str(picture), "--storage", str(storage)]
    assert "Opportunity cost" in conbo("demo", *arguments).stdout
    assert picture.exists()
    assert storage.exists()


def test_status_names_a_log_that_holds_the_newest_changes(conbo: Conbo, learned: library.Study) -> None:
    learned.ask()  # its connection is open, so the log is there
    assert (
        "study.db-wal may hold the newest changes: copy the study with `conbo export --database`"
        in conbo("status").stdout
    )
    assert "-wal" in conbo("status", "study.db").stdout
