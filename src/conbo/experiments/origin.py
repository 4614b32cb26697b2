"""Computes the origin of a run: version, platform, and a fingerprint of the code that the run's numbers depend on.

The fingerprint is a hash of the problem's data files and of source files: the modules that define the method's recipe,
the problem, the optimizer and the scoring, and all modules that these import. Other methods and problems, storage and
presentation are left out, and so is code for what recorded runs do not use, such as costs. If another library suggests
the points, conbo's optimizer is left out too. A recorded run is stale if the current code has another fingerprint.
Docstrings, comments, blank lines and the names of modules do not count, so rewriting a comment or renaming a file does
not make runs stale. Nor do checks count, which only refuse bad input: a run that was made has passed them. Statements
that begin with `if space.feasible_set is not None:` or `if callable(self.cost):` do not count either, because no
recorded run has limits or a cost function.
"""

import ast
import hashlib
import platform
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from typing import Any

from conbo.experiments.problem_names import load_problem
from conbo.experiments.run_file import Origin, Run, RunSettings
from conbo.method_list import Method

SOURCE = Path(__file__).parents[1]
ROOTS = ("conbo.experiments.evaluation", "conbo.experiments.scoring")
OURS = "conbo.experiments.entering"  # makes a method of conbo a contestant; alternatives do not depend on it
FINAL_ROUND = "conbo.experiments.final_round"
# Modules and methods that list, store, check, name, predict or show things, or are about costs, limits, densities of
# states and priors, which no recorded run has. Numbers do not depend on them. The methods and problems that they list
# are found from the recipe and the problem of the run instead.
IGNORED = frozenset(
    {
        "conbo",
        "conbo.acquisition.constrained_gain",
        "conbo.acquisition.integral_over_states.AveragedAcquisition.includes_constraints",
        "conbo.acquisition.per_cost",
        "conbo.acquisition.where_feasible",
        "conbo.constrained_ascent",
        "conbo.constrained_search",
        "conbo.constraint_learner",
        "conbo.constrained_steps",
        "conbo.constraint_text",
        "conbo.cost_learner",
        "conbo.cost_model",
        "conbo.cost_rules",
        "conbo.dataframes",
        "conbo.density_states",
        "conbo.design_by_cost",
        "conbo.errors",
        "conbo.experiments.origin",
        "conbo.experiments.problem_names",
        "conbo.experiments.run_file",
        "conbo.feasible_set",
        "conbo.files",
        "conbo.former_names",
        "conbo.html_pieces",
        "conbo.learned_constraints",
        "conbo.linear_limits",
        "conbo.method_list",
        "conbo.method_table",
        "conbo.models.feasible_ends",
        "conbo.models.one_study",
        "conbo.models.page_record",
        "conbo.names",
        "conbo.notices",
        "conbo.optimizer.Optimizer.best_observed",
        "conbo.optimizer.Optimizer._admissible",
        "conbo.outcome_constraints",
        "conbo.parameter_records",
        "conbo.policies.interaction",
        "conbo.policies.policy.Policy._predict",
        "conbo.policies.policy.Policy.predict",
        "conbo.policies.policy.Policy.predict_actions",
        "conbo.policies.policy.Policy.predict_many",
        "conbo.policies.policy.Policy.save",
        "conbo.policies.policy.Policy.table",
        "conbo.policies.policy_file",
        "conbo.policies.policy_map",
        "conbo.problems",
        "conbo.record_fields",
        "conbo.rounding",
        "conbo.setting_conflicts",
        "conbo.setting_rules",
        "conbo.space_limits",
        "conbo.study_summary",
    }
)
# methods that count only for runs with a final round, because others do not use them
OF_FINAL_ROUND = frozenset(
    {
        "conbo.learner.Learner.propose_improving",
        "conbo.optimizer.Optimizer.ask_improving",
        "conbo.optimizer.Optimizer.suggest_improving",
    }
)
# libraries whose versions are recorded in addition to Python's
LIBRARIES = ("torch", "numba", "botorch", "optuna", "ax-platform")
REFUSALS = ("SettingError", "SpaceError")  # the errors with which checks refuse bad input
UNUSED = r"[\w.]+\.feasible_set is not None|callable\(self\.cost\)"  # conditions that hold in no recorded run
CHECK = "check_"  # how the names of functions begin that only refuse bad input
DIGITS = 16  # number of digits of a fingerprint


def origin_of(settings: RunSettings, method: object) -> Origin:
    """The origin (version, platform and fingerprint of the code) of a run that is made now on this machine."""
    return Origin(version("conbo"), platform_name(), code_of(settings, method))


def code_of(settings: RunSettings, method: object) -> str:
    """The fingerprint of the code that a run of this method with these settings depends on."""
    return _fingerprint(tuple(sorted(modules_of(settings, method))), _data_files(settings.problem))


def modules_of(settings: RunSettings, method: object) -> set[str]:
    """The names of conbo's modules that the numbers of a run depend on."""
    named = {*modules_within(method), *modules_within(load_problem(settings.problem)), *ROOTS}
    named |= {OURS} if isinstance(method, Method) else set()
    named |= {FINAL_ROUND} if settings.final_round else set()
    return reachable(named)


def is_stale(run: Run, code: str) -> bool:
    """Whether a run is stale for the code with the fingerprint `code`.

    It is stale unless this code made the whole run, or the run is confirmed for this code (see `confirmation`).
    """
    made = bool(run.origins) and all(origin.code == code for origin in run.origins)
    return not made and code not in run.confirmed


@lru_cache(maxsize=1)
def platform_name() -> str:
    """The system, the processor, and the versions of Python and of libraries that affect results, as a string."""
    parts = [f"{platform.system()} {platform.machine()}", f"Python {platform.python_version()}"]
    return ", ".join([*parts, *(f"{name} {_version(name)}" for name in LIBRARIES)])


def modules_within(value: object) -> Iterator[str]:
    """Yield the names of conbo's modules that define a value (such as a method or a problem) or a part of it."""
    if isinstance(value, partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from modules_within(part)
        return
    if isinstance(value, Mapping):
        for part in value.values():
            yield from modules_within(part)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            yield from modules_within(part)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from modules_within(getattr(value, field.name))
    owner = getattr(value, "__self__", None)  # of a bound method
    if is_dataclass(owner):
        yield from modules_within(owner)
    home = getattr(value, "__module__", None)
    if isinstance(home, str) and home.startswith("conbo."):
        yield home


def reachable(modules: Iterable[str]) -> set[str]:
    """These modules and all of conbo's modules that they import, directly or indirectly, except `IGNORED` ones.

    The numbers of a run do not depend on what is `IGNORED`.
    """
    found: set[str] = set()
    waiting = [module for module in modules if module not in IGNORED]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting.extend(imported for imported in imports_of(module) if imported not in IGNORED)
    return found


@cache
def imports_of(module: str) -> frozenset[str]:
    """The modules of conbo that a module imports, except imports that are only for type checkers."""
    return frozenset(_imports(_tree(module)))


@cache
def code_lines(module: str, ignored: frozenset[str] = IGNORED) -> str:
    """The source of a module without docstrings, comments, blank lines, checks and methods that are `ignored`.

    Statements for spaces whose actions are limited, and for known costs, are left out as well.

    What it imports from conbo's modules is listed first, in alphabetical order and without the names of the modules.
    Imports from ignored modules are left out.
    """
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    dropped = {line for method in _methods_among(ignored, module) for line in _lines_of(method)}
    imported: list[str] = []
    for node in ast.walk(_tree(module)):
        if getattr(node, "lineno", 0) in dropped:
            continue
        text: ast.stmt | None = None
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
        elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            text = node
            if node.module not in ignored:
                imported += [f"{alias.name} as {alias.asname or alias.name}" for alias in node.names]
        elif (isinstance(node, ast.If) and (_is_check(node) or _is_unused(node))) or (
            isinstance(node, ast.Expr) and _calls_check(node)
        ):
            text = node
        if text is not None:
            dropped.update(_lines_of(text))
    lines = enumerate(_without_comments(_path(module)), start=1)
    kept = (line.rstrip() for number, line in lines if number not in dropped)
    return "\n".join([*sorted(imported), *filter(None, kept)])


def _methods_among(names: frozenset[str], module: str) -> list[ast.stmt]:
    """The definitions of those methods of a module's classes whose full names are among `names`."""
    classes = [node for node in _tree(module).body if isinstance(node, ast.ClassDef)]
    methods = [(one.name, node) for one in classes for node in one.body if isinstance(node, ast.FunctionDef)]
    return [node for name, node in methods if f"{module}.{name}.{node.name}" in names]


def _lines_of(node: ast.stmt) -> range:
    """The numbers of a statement's lines, from the first decorator of a definition."""
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    return range(first, (node.end_lineno or node.lineno) + 1)


def _is_check(node: ast.If) -> bool:
    """Whether a statement does nothing but refuse a setting: `if ...: raise SettingError(...)`.

    The condition must not assign names. The error's text may be put together in assignments before it is raised.
    """
    *texts, last = node.body
    error = last.exc if isinstance(last, ast.Raise) else None
    refuses = isinstance(error, ast.Call) and isinstance(error.func, ast.Name) and error.func.id in REFUSALS
    assigns = any(isinstance(part, ast.NamedExpr) for part in ast.walk(node.test))
    return refuses and not assigns and not node.orelse and all(isinstance(text, ast.Assign) for text in texts)


def _is_unused(node: ast.If) -> bool:
    """Whether a statement does something only if actions are limited, or if there is a cost function.

    Such a statement is `if space.feasible_set is not None: ...` or `if callable(self.cost): ...`.
    """
    return not node.orelse and re.fullmatch(UNUSED, ast.unparse(node.test)) is not None


def _calls_check(node: ast.Expr) -> bool:
    """Whether a statement does nothing but call a check, such as `check_model(model)`."""
    called = node.value.func if isinstance(node.value, ast.Call) else None
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    return name.startswith(CHECK)


def _without_comments(path: Path) -> list[str]:
    """The lines of a source file, cut off where a comment begins."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return lines


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue  # imports under `if TYPE_CHECKING`
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if _is_ours(alias.name))
        elif isinstance(child, ast.ImportFrom) and child.module and _is_ours(child.module):
            submodules = [name for alias in child.names if _is_ours(name := f"{child.module}.{alias.name}")]
            yield from submodules
            if len(submodules) < len(child.names):
                yield child.module
        else:
            yield from _imports(child)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "conbo" and _path(module).is_file()


def _path(module: str) -> Path:
    place = SOURCE.joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_path(module).read_text(encoding="utf-8"))


@cache
def _fingerprint(modules: tuple[str, ...], data: tuple[Path, ...]) -> str:
    ignored = IGNORED if FINAL_ROUND in modules else IGNORED | OF_FINAL_ROUND
    parts = [f"{code}\n".encode() for code in sorted(code_lines(module, ignored) for module in modules)]
    parts += [path.name.encode() + b"\n" + path.read_bytes() for path in data]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:DIGITS]


def _data_files(problem: str) -> tuple[Path, ...]:
    """The files that a problem depends on: its tables in the package, or the user's file that defines it."""
    source, _, _ = problem.rpartition(":") if ".py:" in problem else problem.partition(":")
    if source.endswith(".py"):
        return (Path(source),)
    return tuple(sorted((SOURCE / "problems" / "data").glob(f"{source}*")))


def _version(library: str) -> Any:
    try:
        return version(library)
    except PackageNotFoundError:
        return "absent"
