"""What a run says about tests whose tools are missing."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from missing_tools import skip_without

@pytest.mark.parametrize("i", range(3))
def test_tool(i):
    skip_without("Chromium", "brew install chromium")

def test_other():
    pytest.skip("root may do everything")

@pytest.mark.skipif(True, reason="needs a GPU")
def test_marked():
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A test suite that shares the last lines with this one."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    pytester.makeconftest("from missing_tools import pytest_terminal_summary")
    pytester.makepyfile(TESTS)
    return pytester


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_last_lines_say_what_was_skipped(
    options: tuple[str, ...], suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONBO_REQUIRE_TOOLS", raising=False)
    result = suite.runpytest_subprocess(*options)
    result.assert_outcomes(skipped=5)
    expected = {
        "3 skipped: Chromium is missing; to run this: brew install chromium",
        "1 skipped: root may do everything",
        "1 skipped: needs a GPU",
    }
    assert expected == set(result.outlines[-4:-1])


def test_required_tools_are_not_skipped(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONBO_REQUIRE_TOOLS", "1")
    result = suite.runpytest_inprocess()
    result.assert_outcomes(failed=3, skipped=2)
    result.stdout.fnmatch_lines(["*Chromium is missing, but CONBO_REQUIRE_TOOLS is set*brew install chromium*"])
