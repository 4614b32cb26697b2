"""The version is written in `src/conbo/__init__.py`, and other files agree with it."""

import re
import tomllib
from pathlib import Path

import conbo

ROOT = Path(__file__).parents[1]


def test_the_citation() -> None:
    (cited,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited == conbo.__version__


def test_the_changelog() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1:2] in ([], [conbo.__version__]), "the latest release is this version, or there was none yet"


def test_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in settings["project"]
    assert settings["tool"]["hatch"]["version"]["path"] == "src/conbo/__init__.py"
