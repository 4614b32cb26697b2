"""What users may rely on, and how little `import conbo` costs."""

import inspect
import json
import subprocess
import sys
from importlib.metadata import version
from types import ModuleType

import pytest

import conbo

PUBLIC = [
    "AtLeast",
    "AtMost",
    "Categorical",
    "Client",
    "Comparison",
    "Density",
    "GaussianProcess",
    "Integer",
    "Interval",
    "Method",
    "Model",
    "Normal",
    "Objective",
    "Optimizer",
    "Outcomes",
    "Policy",
    "Prediction",
    "Product",
    "Real",
    "RunSummary",
    "SeededObjective",
    "Space",
    "Study",
    "StudySummary",
    "Trial",
    "Triangular",
    "Uniform",
    "Validation",
    "Weights",
    "__version__",
    "errors",
    "integrations",
    "load_policy",
    "methods",
    "open_study",
    "plots",
    "problems",
    "report",
    "study_names",
]


def test_public_names() -> None:
    assert conbo.__all__ == dir(conbo) == PUBLIC
    assert all(getattr(conbo, name) is not None for name in PUBLIC)
    assert isinstance(conbo.problems, ModuleType)
    assert isinstance(conbo.errors, ModuleType)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="module 'conbo' has no attribute 'Studdy'"):
        _ = conbo.Studdy  # type: ignore[attr-defined]


def test_signatures() -> None:
    def names(function: object) -> list[str]:
        return list(inspect.signature(function).parameters)  # type: ignore[arg-type]

    settings = ["space", "direction", "method", "state_distribution", "model", "seed", "initial"]
    more = ["cost", "prior", "reward_range", "common_random_numbers", "seeds"]
    more += ["outcome_constraints", "confidence", "failures"]
    assert names(conbo.Optimizer) == [*settings, "device", *more]
    assert names(conbo.Study) == [*settings, *more, "name", "storage", "device"]
    ends = ["evaluations", "budget", "max_seconds", "worth"]
    options = ["workers", "executor", "batch", "timeout", "retries", "stop_below", "finish", "on_interrupt", "lease"]
    options += ["max_lost_workers", "callbacks"]
    assert names(conbo.Study.run) == ["self", "objective", *ends, *options, "progress"]
    fresh = ["objective", "evaluations", "states", "workers", "executor", "progress"]
    assert names(conbo.Study.validate) == ["self", *fresh]
    assert names(conbo.Study.compare) == ["self", "rule", *fresh[:2], "name", *fresh[2:]]
    assert names(conbo.open_study) == ["storage", "name", "device"]
    assert names(conbo.study_names) == ["storage"]
    for kind in (conbo.Study, conbo.Optimizer):
        assert names(kind.ask) == ["self", "n", "state", *(["lease"] if kind is conbo.Study else [])]
        assert names(kind.tell) == ["self", "trial", "reward", "noise", "outcomes", "cost"]
        assert names(kind.fail) == ["self", "trial", "error"]
        assert names(kind.policy) == ["self"]


def test_the_version_is_that_of_the_package() -> None:
    assert conbo.__version__ == version("conbo")


def test_import_is_quick_and_leaves_torch_alone() -> None:
    code = """
import json, sys, time
began = time.perf_counter()
import conbo
seconds = time.perf_counter() - began
conbo.errors.ConboError, conbo.Space, conbo.Real, conbo.problems, dir(conbo)
print(json.dumps({"seconds": seconds, "torch": "torch" in sys.modules}))
"""
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
        for _ in range(3)
    ]
    assert not any(run["torch"] for run in runs)
    assert min(run["seconds"] for run in runs) < 0.3


@pytest.mark.parametrize(("name", "package"), [("plots", "plotly"), ("report", "jinja2")])
def test_pictures_without_the_extra(name: str, package: str) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None  # as if it were not installed
import conbo
try:
    conbo.{name}
except conbo.errors.ConboError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == f"`conbo.{name}` needs {package}, which is not installed: pip install 'conbo[plots]'\n"
