"""`scripts/check_wheels.py`, without the index."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

SCRIPT = Path(__file__).parents[1] / "scripts" / "check_wheels.py"
EVERYWHERE = {f"{platform} {python}" for platform in ("linux x86_64", "linux aarch64", "macos arm64", "windows amd64")
              for python in ("3.11", "3.12", "3.13", "3.14")}  # fmt: skip


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("check_wheels", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["check_wheels"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def places(names: str) -> set[str]:
    """The platforms and Pythons whose names contain all of the words."""
    return {place for place in EVERYWHERE if all(name in place for name in names.split())}


@pytest.mark.parametrize(
    ("filename", "covered"),
    [
        ("p-1.0-py3-none-any.whl", places("")),
        ("p-1.0-py2.py3-none-any.whl", places("")),
        ("p-1.0-cp312-cp312-win_amd64.whl", places("windows 3.12")),
        ("p-1.0-cp39-abi3-win_amd64.whl", places("windows")),
        ("p-1.0-cp313-abi3-win_amd64.whl", places("windows 3.13") | places("windows 3.14")),
        ("p-1.0-cp314-cp314t-win_amd64.whl", set()),
        ("p-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", places("x86_64 3.11")),
        ("p-1.0-cp311-cp311-manylinux2014_aarch64.whl", places("aarch64 3.11")),
        ("p-1.0-cp311-cp311-manylinux1_x86_64.whl", places("x86_64 3.11")),
        ("p-1.0-cp311-cp311-manylinux_2_28_aarch64.whl", places("aarch64 3.11")),
        ("p-1.0-cp311-cp311-manylinux_2_39_aarch64.whl", set()),
        ("p-1.0-cp311-cp311-musllinux_1_2_x86_64.whl", set()),
        ("p-1.0-py3-none-macosx_14_0_arm64.whl", places("macos")),
        ("p-1.0-py3-none-macosx_10_9_universal2.whl", places("macos")),
        ("p-1.0-py3-none-macosx_10_9_x86_64.whl", set()),
        ("p-1.0+cpu-cp311-cp311-win_amd64.whl", places("windows 3.11")),
        ("p-1.1-py3-none-any.whl", set()),
        ("p-1.0.tar.gz", set()),
    ],
)
def test_where_a_wheel_can_be_installed(script: Any, filename: str, covered: set[str]) -> None:
    missing = script.gaps(Requirement("p==1.0"), [script.File(filename, None)])
    assert {f"{platform.name} {python}" for platform, python in missing} == EVERYWHERE - covered


@pytest.mark.parametrize(
    ("requires_python", "missing"),
    [(">=3.11", set()), (">=3.12", places("3.11")), (">=3.11.5", places("3.11")), ("<3.14,>=3.10", places("3.14"))],
)
def test_pythons_that_a_file_is_for(script: Any, requires_python: str, missing: set[str]) -> None:
    found = script.gaps(Requirement("p==1.0"), [script.File("p-1.0-py3-none-any.whl", requires_python)])
    assert {f"{platform.name} {python}" for platform, python in found} == missing


@pytest.mark.parametrize(
    ("marker", "needed"),
    [
        ("platform_machine == 'x86_64'", places("x86_64")),
        ("platform_machine != 'aarch64' and python_version < '3.13'",
         (places("3.11") | places("3.12")) - places("aarch64")),
        ("sys_platform == 'win32'", places("windows")),
        ("os_name == 'posix' and platform_system != 'Darwin'", places("linux")),
    ],
)  # fmt: skip
def test_markers(script: Any, marker: str, needed: set[str]) -> None:
    missing = script.gaps(Requirement(f"p==1.0; {marker}"), [])
    assert {f"{platform.name} {python}" for platform, python in missing} == needed


def test_pins(script: Any) -> None:
    text = "# a comment\n\na-b==1.0\nc==2.0; python_version < '3.13'  # why\n"
    assert [str(pin) for pin in script.pins(text)] == ["a-b==1.0", 'c==2.0; python_version < "3.13"']
    assert all(len(pin.specifier) == 1 for pin in script.pins(script.CONSTRAINTS.read_text(encoding="utf-8")))


def test_table(script: Any) -> None:
    linux, *_, windows = script.PLATFORMS
    found = [(Requirement("long-name==1.0"), [(linux, "3.11"), (linux, "3.14"), (windows, "3.14")])]
    assert script.table(found).splitlines() == [
        "pin             linux x86_64  linux aarch64  macos arm64  windows amd64",
        "long-name==1.0  3.11 3.14     -              -            3.14",
    ]
