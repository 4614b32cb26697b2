"""A reward that is there when Ctrl-C is pressed is recorded, even if the interrupt comes while it is being told."""

from typing import Any

import pytest

from conbo import Real, Space, Study
from conbo.study.records import Records

SPACE = Space(actions={"x": Real(0, 1)})


def test_a_reward_is_told_before_the_run_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    study, tell, calls = Study(SPACE, method="uniform"), Records.tell, []

    def interrupted_once(*arguments: Any, **settings: Any) -> bool:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return tell(*arguments, **settings)

    monkeypatch.setattr(Records, "tell", interrupted_once)
    summary = study.run(lambda state, action: float(action["x"]), evaluations=5, progress=False)
    assert summary.stopped == "interrupted"
    assert [trial.status for trial in study.trials] == ["completed"] * 2
