"""What is recorded of evaluations that fail: the text of the error, from where it happened, and not too much of it."""

import re
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conbo.errors import ConboError
from conbo.spaces import Real, Space
from conbo.study import Study
from forked_processes import forked


def new_study(storage: Path | None = None) -> Study:
    return Study(Space(actions={"x": Real(0, 1)}), method="uniform", storage=storage)


class TwoArgumentsError(Exception):
    """Pickles, but cannot be read: it is called with its message alone."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"no {what} at {where}")


class SpeechlessError(Exception):
    """Has no message, not even an empty one."""

    def __str__(self) -> str:
        raise ZeroDivisionError


def raises_what_cannot_be_read(state: dict[str, Any], action: dict[str, Any]) -> float:
    raise TwoArgumentsError("convergence", "step 7")


def raises_what_cannot_be_sent(state: dict[str, Any], action: dict[str, Any]) -> float:
    error = ValueError("with a lock")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    raise error


def raises_what_cannot_be_said(state: dict[str, Any], action: dict[str, Any]) -> float:
    raise SpeechlessError


def returns_what_cannot_be_sent(state: dict[str, Any], action: dict[str, Any]) -> Any:
    return threading.Lock()


@pytest.mark.parametrize("where", ["here", "processes", "executor"])
@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (raises_what_cannot_be_read, "TwoArgumentsError: no convergence at step 7"),
        (raises_what_cannot_be_sent, "ValueError: with a lock"),
        (raises_what_cannot_be_said, "SpeechlessError: (its message cannot be read: ZeroDivisionError)"),
        (
            returns_what_cannot_be_sent,
            "RewardError: a reward must be one finite number, but got <unlocked _thread.lock",
        ),
    ],
)
def test_the_text_of_an_error_comes_from_where_it_happened(failing: Any, error: str, where: str) -> None:
    study = new_study()
    with ProcessPoolExecutor(1, forked()) as pool:
        settings: dict[str, Any] = {"here": {}, "processes": {"workers": 2}, "executor": {"executor": pool}}[where]
        with pytest.raises(ConboError, match=re.escape(f"failed 10 times in a row: {error}")) as raised:
            study.run(failing, 3, progress=False, **settings)
    assert {trial.status for trial in study.trials} <= {"failed", "running"}
    assert all(trial.error.startswith(error) for trial in study.trials if trial.status == "failed")
    if where != "here" and failing is raises_what_cannot_be_read:
        assert "in raises_what_cannot_be_read" in "".join(raised.value.__cause__.__notes__)  # type: ignore[union-attr]


class Homeless:
    """An objective whose module only this process can import."""

    def __init__(self, why: BaseException) -> None:
        self.why = why

    def __call__(self, state: dict[str, Any], action: dict[str, Any]) -> float:
        return 1.0

    def __reduce__(self) -> Any:
        return cannot_be_imported, (self.why,)


def cannot_be_imported(why: BaseException) -> None:
    raise why


@pytest.mark.parametrize("why", [ModuleNotFoundError("No module named 'simulator'"), SystemExit("no license")])
def test_an_objective_that_a_worker_process_cannot_load(why: BaseException) -> None:
    study = new_study()
    with pytest.raises(ConboError, match="failed 10 times in a row: the objective cannot be loaded"):
        study.run(Homeless(why), 3, workers=2, progress=False)
    rule = "the objective cannot be loaded in a worker process: "
    errors = {trial.error for trial in study.trials if trial.status == "failed"}  # the last may still be running
    assert errors == {f"{rule}{type(why).__name__}: {why}"}


def test_long_texts_are_cut(tmp_path: Path) -> None:
    def returns_a_page(state: dict[str, Any], action: dict[str, Any]) -> Any:
        return "x" * 1_000_000

    def raises_a_page(state: dict[str, Any], action: dict[str, Any]) -> float:
        raise ValueError("first words" + "x" * 1_000_000 + "last words")

    for failing in (returns_a_page, raises_a_page):
        study = new_study(tmp_path / f"{failing.__name__}.db")
        with pytest.raises(ConboError) as raised:
            study.run(failing, 3, progress=False)
        assert len(str(raised.value)) < 1_000
        assert all(len(trial.error) < 11_000 for trial in study.trials)
        assert sum(path.stat().st_size for path in tmp_path.glob(f"{failing.__name__}.db*")) < 1_000_000
    assert study.trials[0].error.startswith("ValueError: first words")
    assert " characters cut …] xxx" in study.trials[0].error
    assert study.trials[0].error.endswith("xxxlast words (test_error_texts.py, line 110)")


class Goodbye(SystemExit):
    """Pickles, but cannot be read, and is no `Exception`."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"no {what} at {where}")


def ends_its_process(state: dict[str, Any], action: dict[str, Any]) -> float:
    raise Goodbye("license", "step 7")


@pytest.mark.parametrize("where", ["processes", "executor", "threads"])
def test_an_evaluation_that_wants_to_end_another_process_has_failed_there(where: str) -> None:
    study = new_study()
    with ProcessPoolExecutor(1, forked()) as pool, ThreadPoolExecutor(1) as threads:
        settings: dict[str, Any] = {
            "processes": {"workers": 2},
            "executor": {"executor": pool},
            "threads": {"executor": threads},
        }[where]
        study.run(ends_its_process, 3, progress=False, callbacks=[lambda study, trial: study.stop()], **settings)
    text = r"Goodbye: no license at step 7 \(test_error_texts.py, line \d+\)"
    assert all(re.fullmatch(text, trial.error) for trial in study.trials if trial.status == "failed")
    assert study.trials[0].status == "failed"
