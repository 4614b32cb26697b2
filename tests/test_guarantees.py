"""Every guarantee in the docs names a test that exists."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "guarantees.md"


def test_every_guarantee_is_shown_by_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| (?!what [a-z ]+ \| what )", line)]
    assert len(rows) > 30
    for row in rows:
        shown_by = re.search(r"`([\w/]+\.py)::(test_\w+)` \|$", row)
        assert shown_by is not None, f"no test is named in: {row}"
        path, name = shown_by.groups()
        assert re.search(rf"^def {name}\(", (TESTS / path).read_text(), re.MULTILINE), f"there is no {name} in {path}"
