"""study.toml: what it says becomes a study, and what is wrong is named."""

from math import inf
from pathlib import Path

import pytest

from conbo import Categorical, Integer, Normal, Real, Space, Triangular, Weights
from conbo.cli.study_file import TEMPLATE, read_study_file
from conbo.errors import SettingError

FULL = """
name = "wards"
storage = "wards.db"
direction = "minimize"
method = "uniform"
seed = 7
reward_range = [0, inf]

[states]
age = { type = "integer", low = 18, high = 90 }
ward = { type = "categorical", choices = ["A", "B", true] }

[actions]
dose = { type = "real", low = 0.1, high = 10, log = true }

[distribution]
age = { type = "weights", weights = { 20 = 1, 60 = 3 } }
ward = { type = "weights", weights = { A = 1, true = 2 } }
"""


def test_everything(tmp_path: Path) -> None:
    path = tmp_path / "wards.toml"
    path.write_text(FULL)
    file = read_study_file(path)
    assert file.space == Space(
        states={"age": Integer(18, 90), "ward": Categorical(["A", "B", True])},
        actions={"dose": Real(0.1, 10, log=True)},
    )
    assert file.state_distribution == {"age": Weights({20: 1, 60: 3}), "ward": Weights({"A": 1, True: 2})}
    assert (file.name, file.direction, file.method, file.seed) == ("wards", "minimize", "uniform", 7)
    assert file.reward_range == [0, inf]
    assert file.storage == str(tmp_path / "wards.db")
    study = file.study()
    assert (study.name, study.direction, study.method, study.seed) == ("wards", "minimize", "uniform", 7)
    assert file.study("other").name == "other"


def test_defaults(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[actions]\nx = { type = "real", low = 0, high = 1 }')
    file = read_study_file(path)
    assert file.storage == str(tmp_path / "mine.db")
    assert (file.name, file.direction, file.method, file.seed) == ("default", "maximize", "conbo", None)
    assert file.state_distribution is None


def test_urls_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text('storage = "postgresql+psycopg://h/d"\n[actions]\nx = { type = "real", low = 0, high = 1 }')
    assert read_study_file(path).storage == "postgresql+psycopg://h/d"


def test_the_template_is_a_study_with_every_kind_in_its_comments(tmp_path: Path) -> None:
    text = TEMPLATE.read_text()
    assert read_study_file(TEMPLATE).state_distribution == {"demand": Normal(60, 15)}
    path = tmp_path / "study.toml"
    lines = [line.removeprefix("# ") if " = {" in line else line for line in text.splitlines()]
    path.write_text("\n".join(lines))
    file = read_study_file(path)
    assert list(file.space.states) == ["demand", "day", "region"]
    assert file.state_distribution is not None
    assert file.state_distribution["day"] == Triangular(5)
    assert file.state_distribution["region"] == Weights({"north": 3, "south": 1})


X = "x = { type = 'real', low = 0, high = 1 }"
STATE = f"[states]\n{X}\n[actions]\ny = {{ type = 'real', low = 0, high = 1 }}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "this is not TOML: Invalid value"),
        (f"direktion = 'maximize'\n[actions]\n{X}", "unknown key `direktion`: did you mean 'direction'?"),
        (f"name = 3\n[actions]\n{X}", "`name` must be a string, but got 3."),
        (f"seed = 'a'\n[actions]\n{X}", "`seed` must be an integer, but got 'a'."),
        (f"reward_range = [1, 0]\n[actions]\n{X}", "`reward_range` must be a low and a higher limit"),
        (f"[states]\n{X}", "`actions` must name at least one parameter"),
        ("actions = 3", "`actions` must be a table, but got 3."),
        ("actions.x = 3", "`actions.x` must be a table, but got 3."),
        ("actions.x = { low = 0 }", "`actions.x.type` must be one of real, integer, categorical, but got None."),
        (
            "actions.x = { type = ['real'] }",
            "`actions.x.type` must be one of real, integer, categorical, but got ['real']",
        ),
        (
            "actions.x = { type = 'real', low = 0, high = 1, log = 'no' }",
            "`log` must be True or False, but got log='no'",
        ),
        (f"actions.x = {{ type = 'real', low = 0, high = {10**400} }}", "`high` must be a finite number"),
        (f"seed = {'9' * 5000}", "this is not TOML: Exceeds the limit"),
        (f"x = {'[' * 9999}", "this is not TOML: maximum recursion depth"),
        (f"seed = true\n[actions]\n{X}", "`seed` must be an integer, but got True."),
        (f"name = ''\n[actions]\n{X}", "`name` must be a non-empty string, but got ''."),
        (f"name = '..'\n[actions]\n{X}", "`name` must not be '.' or '..'"),
        (f"storage = 'a\\u0000b'\n[actions]\n{X}".replace("'", '"'), "`storage` must be a string, but got 'a\\x00b'."),
        (f'storage = ""\n[actions]\n{X}', "`storage` must be the path of a file or a database URL, but is empty."),
        ("actions.x = { type = 'categorical', choices = { a = 1 } }", r"choices` must be a sequence of values"),
        (
            "states.n = { type = 'integer', low = 1, high = 9 }\nactions.x = { type = 'real', low = 0, high = 1 }\n"
            "distribution.n = { type = 'weights', weights = { 2 = 1, '2.0' = 3 } }",
            "`distribution.n.weights` must name every value once",
        ),
        ("actions.x = { type = 'real', low = 0 }", "`actions.x` must have `high`, but got {'type': 'real', 'low': 0}."),
        ("actions.x = { type = 'real', hihg = 1 }", "unknown key `actions.x.hihg`: did you mean 'high'?"),
        ("actions.x = { type = 'real', low = 2, high = 1 }", "in `actions.x`: `low < high` must hold, but got low=2.0"),
        (f"{STATE}[distribution]\nxx = {{ type = 'uniform' }}", "unknown key `distribution.xx`: "),
        (
            f"{STATE}[distribution]\nx = {{ type = 'gamma' }}",
            "`distribution.x.type` must be one of uniform, triangular, normal, weights, but got 'gamma'.",
        ),
        (
            f"{STATE}[distribution]\nx = {{ type = 'normal', mean = 0, sd = -1 }}",
            "in `distribution.x`: `0 < sd < inf` must hold, but got sd=-1.",
        ),
    ],
)
def test_errors_name_the_file_the_key_and_the_value(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(SettingError) as raised:
        read_study_file(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert message in str(raised.value)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingError, match="this is not a text file in UTF-8"):
        read_study_file(path)


def test_weights_accept_every_spelling_of_a_choice(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        """
        actions = { x = { type = "real", low = 0, high = 1 } }
        states = { c = { type = "categorical", choices = [3, 2.0, true, "3.0"] } }
        distribution = { c = { type = "weights", weights = { 3 = 1, 2 = 2, TRUE = 3, "3.0" = 4 } } }
        """
    )
    assert read_study_file(path).state_distribution == {"c": Weights({3: 1, 2.0: 2, True: 3, "3.0": 4})}


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(f"name = 'doses'\n[actions]\n{X}", encoding="utf-8-sig")
    assert read_study_file(path).name == "doses"
