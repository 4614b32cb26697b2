"""A real browser, where one is found."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from missing_tools import skip_without

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Chromium, from `CONBO_CHROMIUM`, the path or Playwright's own folder."""
    from playwright.sync_api import sync_playwright  # slow, and few tests need it

    path = os.environ.get("CONBO_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        if path is None and Path(playwright.chromium.executable_path).exists():
            path = playwright.chromium.executable_path
        if path is None:
            skip_without("Chromium", f"{sys.executable} -m playwright install --with-deps chromium")
        launched = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield launched
        launched.close()
