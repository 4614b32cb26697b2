"""What takes long is said before it begins, to those who listen."""

import logging

import pytest

from conbo.models.fit import announce, expected_seconds
from conbo.notices import LOG, in_words, listening
from conbo.spaces import Real, Space
from conbo.study import Study


def test_times_in_words() -> None:
    assert [in_words(s) for s in (0.03, 1.4, 1.5, 2.6, 9.4, 37, 88, 228, 5000, 6000)] == [
        "1 second",
        "1 second",
        "2 seconds",
        "3 seconds",
        "9 seconds",
        "40 seconds",
        "90 seconds",
        "4 minutes",
        "83 minutes",
        "2 hours",
    ]


def test_a_long_fit_is_announced_and_a_short_one_is_not() -> None:
    lines: list[str] = []
    with listening(lines.append):
        announce(100, 8)
        announce(5000, 8)
    assert lines == ["Fitting the model to 5,000 rewards; this takes about 2 minutes."]
    assert expected_seconds(100, 8) < 2 < expected_seconds(500, 8)


def test_nobody_hears_anything_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    announce(5000, 8)
    assert capsys.readouterr() == ("", "")
    assert LOG.level == logging.NOTSET


def test_the_last_to_listen_hears_alone_and_others_keep_their_handlers(caplog: pytest.LogCaptureFixture) -> None:
    first: list[str] = []
    second: list[str] = []
    with listening(first.append):
        with listening(second.append):
            LOG.info("one")
        LOG.warning("two")
    assert (first, second) == (["Warning: two"], ["one"])
    assert [record.getMessage() for record in caplog.records] == ["one", "two"]
    assert LOG.handlers == []


def test_an_unexpected_error_comes_with_its_traceback() -> None:
    lines: list[str] = []
    with listening(lines.append):
        try:
            raise RuntimeError("broken")
        except RuntimeError:
            LOG.exception("a request failed")
    assert lines[0].startswith("Error: a request failed\nTraceback (most recent call last):\n")
    assert lines[0].endswith("RuntimeError: broken")


def test_a_run_shows_the_lines_above_its_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conbo.models.fit.ANNOUNCED_SECONDS", 0.0)
    space = Space(actions={"x": Real(0, 1)})
    Study(space, method="expected-improvement", initial=3).run(lambda state, action: action["x"], evaluations=4)
    error_output = capsys.readouterr().err
    assert "Fitting the model to 3 rewards; this takes about" in error_output
    assert "4/4" in error_output
    Study(space, method="expected-improvement", initial=3).run(
        lambda state, action: action["x"], evaluations=4, progress=False
    )
    assert capsys.readouterr() == ("", "")
