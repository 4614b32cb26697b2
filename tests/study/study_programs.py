"""What processes of these tests do before they are killed."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conbo.optimizer import Optimizer
from conbo.spaces import Integer, Real, Space
from conbo.study import Study
from conbo.study.records import Records
from forked_processes import forked

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1), "n": Integer(1, 5)})
METHOD, INITIAL = "expected-improvement", 4


def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
    return float(-((action["x"] - state["s"]) ** 2) - 0.1 * abs(action["n"] - 3))


def new_study(storage: Path | None) -> Study:
    return Study(SPACE, method=METHOD, initial=INITIAL, storage=storage)


def in_a_process(program: Callable[..., None], *arguments: Any) -> int | None:
    """Run the program to its end; its exit status."""
    process = forked().Process(target=program, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def die(*_: Any, **__: Any) -> Any:
    """As if the power of this process alone was cut."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def run_until_killed(storage: Path, evaluations: int, moment: str) -> None:
    """Run, and die at a moment of trial `evaluations`."""
    study = new_study(storage)
    study.run(objective, evaluations, progress=False)
    if moment == "suggesting":
        Optimizer.suggest = die  # type: ignore[method-assign]
    elif moment == "before it is recorded":
        Records.add = die  # type: ignore[method-assign]
    elif moment == "before it is told":
        Records.tell = die  # type: ignore[method-assign]
    elif moment == "when it is told":
        tell = Records.tell
        Records.tell = lambda *arguments, **named: (tell(*arguments, **named), die())  # type: ignore
    study.run(die if moment == "evaluating" else objective, evaluations + 1, progress=False)
