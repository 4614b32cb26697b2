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
    "Categorical",
    "Density",
    "GaussianProcess",
    "Integer",
    "Normal",
    "Optimizer",
    "Product",
    "Real",
    "Space",
    "Study",
    "Triangular",
    "Uniform",
    "Weights",
    "__version__",
    "errors",
    "load_policy",
    "methods",
    "problems",
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

    settings = ["space", "state_distribution", "method", "model", "seed", "initial", "direction"]
    assert names(conbo.Optimizer) == settings
    assert sorted(names(conbo.Study)) == sorted(settings)
    assert names(conbo.Study.run) == ["self", "objective", "evaluations", "progress"]
    for kind in (conbo.Study, conbo.Optimizer):
        assert names(kind.ask) == ["self", "n", "state"]
        assert names(kind.tell) == ["self", "trial", "reward", "noise"]
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
