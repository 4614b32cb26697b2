"""Tests whose tools are not installed are skipped, and the last lines of the run say which command brings them."""

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn

import pytest

REQUIRED = "CONBO_REQUIRE_TOOLS"


def skip_without(tool: str, command: str) -> NoReturn:
    """Skip the test for want of a tool that the command installs; fail it where tools are required."""
    if os.environ.get(REQUIRED):
        pytest.fail(f"{tool} is missing, but {REQUIRED} is set; to install it: {command}", pytrace=False)
    pytest.skip(f"{tool} is missing; to run this: {command}")


def skip_lines(reports: Iterable[Any]) -> list[str]:
    """One line for each reason why tests were skipped, and how many."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    return [f"{count} skipped: {reason}" for reason, count in reasons.items()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped."""
    for line in skip_lines(terminalreporter.getreports("skipped")):
        terminalreporter.write_line(line)
