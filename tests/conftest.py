"""What all tests share: hypothesis without clocks or chance, one thread, Ctrl-C, the order, and the last lines."""

import signal

import pytest
import torch
from hypothesis import settings

import chromium
import missing_tools

browser = chromium.browser  # one for all tests of pages

settings.register_profile("conbo", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("conbo")

torch.set_num_threads(1)  # many small tensors: a second thread would only wait
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background passes on that it is ignored


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that need a browser, so that one worker starts one browser and makes each page once."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests recorded, such as wall times, and what was skipped."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if isinstance(value, dict):  # the row of a table, which is shown elsewhere
                continue
            terminalreporter.write_line(f"{name}: {value}")
    missing_tools.pytest_terminal_summary(terminalreporter)
