"""The pages about the command line and the settings are what the commands say now."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "write_cli_reference.py"))
    written = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert written == script["page"](), "run: python scripts/write_cli_reference.py"


def test_the_settings_are_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "write_method_settings.py"))
    written = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert written == script["page"](), "run: python scripts/write_method_settings.py"
