"""The API reference is complete: every public name says what it takes, returns and raises, and its examples run."""

import ast
import doctest
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import conbo

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
ENTRY = re.compile(r"^\.\. auto(?:class|function|exception):: ([\w.]+).*\n(?:   :members: (.*)\n)?", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXTRAS = {"optuna": "optuna", "ax": "ax.api.client"}  # packages that a bridge needs


def found(name: str) -> Any:
    """The public thing of this dotted name."""
    module, _, last = name.rpartition(".")
    try:
        return getattr(import_module(module), last)
    except ModuleNotFoundError:  # a member of a class
        return inspect.getattr_static(found(module), last)


def entries() -> Iterator[tuple[str, str | None]]:
    """All names on the page: classes and functions, and members with the class that they belong to."""
    for name, members in ENTRY.findall(PAGE.read_text(encoding="utf-8")):
        yield name, None
        yield from ((f"{name}.{member}", name) for member in members.split(", ") if member)


def needs(name: str) -> None:
    for bridge, package in EXTRAS.items():
        if f".integrations.{bridge}." in name:
            pytest.importorskip(package)


NAMES = [name for name, _ in entries()]
OWNERS = dict(entries())


def member(name: str) -> Any:
    owner = OWNERS[name]
    if owner is None:
        return found(name)
    for base in found(owner).__mro__:
        if name.rpartition(".")[2] in vars(base):
            return vars(base)[name.rpartition(".")[2]]
    raise AttributeError(name)


def sections(doc: str) -> dict[str, str]:
    """The text of each NumPy section by its heading; "" is the text before the first."""
    parts = re.split(r"^(\w+)\n-+\n", doc, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries_of(section: str) -> list[str]:
    """The names that a section explains."""
    lines = [line for line in section.splitlines() if line and not line.startswith(" ")]
    return [name.strip(" *") for line in lines for name in line.split(",")]


def raised(thing: Any) -> set[str]:
    """The errors that the code of a function raises itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name) and call.func.id.endswith("Error")}


def test_every_public_name_is_on_the_page() -> None:
    modules = ("errors", "integrations", "plots", "problems")
    top = {f"conbo.{name}" for name in conbo.__all__ if name not in (*modules, "__version__")}
    inside = {f"conbo.{module}.{name}" for module in ("plots", "problems") for name in found(f"conbo.{module}").__all__}
    assert top | inside <= set(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_what_the_page_on_extensions_imports_is_public() -> None:
    text = (PAGE.parent / "extending.md").read_text(encoding="utf-8")
    imports = re.findall(r"^from (conbo[\w.]*) import (.*)$", text, re.MULTILINE)
    used = {found(f"{module}.{name}") for module, names in imports for name in names.split(", ")}
    public = {found(name) for name, owner in entries() if owner is None and ".integrations." not in name}
    assert used <= public


@pytest.mark.parametrize("name", NAMES)
def test_documentation_is_complete(name: str) -> None:
    needs(name)
    thing = member(name)
    code = getattr(thing, "__func__", thing)  # of a class method
    doc = inspect.getdoc(code)
    assert doc
    told = sections(doc)
    summary, _, rest = told[""].partition("\n")
    assert summary.endswith(".")
    assert not rest or rest.startswith("\n"), "the first line must be a sentence of its own"
    if isinstance(thing, type) and issubclass(thing, BaseException):
        return
    if not callable(code):  # a property
        assert "Parameters" not in told
        return
    makes_itself = not getattr(code, "_is_protocol", False)
    parameters = [p for p in inspect.signature(code).parameters if p not in ("self", "cls")] if makes_itself else []
    assert sorted(entries_of(told.get("Parameters", ""))) == sorted(parameters)
    if isinstance(code, type):
        assert "Examples" in told
        checks = [vars(code)[made] for made in ("__init__", "__post_init__") if made in vars(code) and makes_itself]
        # dataclasses write their own __init__, which has no source
        errors = set().union(*(raised(made) for made in checks if made.__code__.co_filename != "<string>"))
    else:
        returns = inspect.signature(code).return_annotation
        assert ("Returns" in told) == (returns not in (None, "None"))
        assert OWNERS[name] is not None or "Examples" in told
        errors = raised(code)
    assert errors <= set(entries_of(told.get("Raises", "")))


@pytest.fixture(scope="module")
def warehouse() -> dict[str, Any]:
    """What the page defines before its entries."""
    names: dict[str, Any] = {}
    (block,) = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.fixture(scope="module")
def optuna_study(warehouse: dict[str, Any]) -> Any:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial: Any) -> float:
        state, action = (
            {"demand": trial.suggest_float("demand", 10, 100)},
            {"stock": trial.suggest_float("stock", 0, 150)},
        )
        return warehouse["profit"](state, action)

    study.optimize(objective, n_trials=4)
    return study


@pytest.mark.parametrize("name", [name for name, owner in OWNERS.items() if owner is None])
def test_examples(
    name: str,
    warehouse: dict[str, Any],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs(name)
    monkeypatch.chdir(tmp_path)
    names = {**warehouse, "optuna_study": request.getfixturevalue("optuna_study")} if ".optuna." in name else warehouse
    report: list[str] = []
    for place, each in enumerate([name, *(own for own, owner in OWNERS.items() if owner == name)]):
        thing = member(each)
        doc = inspect.getdoc(getattr(thing, "__func__", thing)) or ""
        test = doctest.DocTestParser().get_doctest(doc, dict(names), each, None, 0)
        (tmp_path / str(place)).mkdir()
        monkeypatch.chdir(tmp_path / str(place))
        doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append)
    assert not report, "".join(report)
