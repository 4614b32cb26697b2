"""The version is written in `src/conbo/__init__.py`, and other files agree with it."""

import re
import tomllib
from pathlib import Path

from packaging.version import Version

import conbo

ROOT = Path(__file__).parents[1]


def test_the_latest_release() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    (cited,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert cited == headings[1]
    assert Version(conbo.__version__) >= Version(cited)


def test_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in settings["project"]
    assert settings["tool"]["hatch"]["version"]["path"] == "src/conbo/__init__.py"
