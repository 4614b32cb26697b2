import re
import subprocess
import sys
import time

import pytest

from conbo.study import workers
from conbo.study.workers import is_gone, retire, worker_name

NAME = """
from conbo.study.workers import worker_name
print(worker_name(), flush=True)
input()
"""


def test_no_two_names_are_the_same() -> None:
    assert worker_name() != worker_name()


def test_a_process_that_ended_is_gone_even_if_nobody_asked_how_it_ended() -> None:
    code = NAME.replace("from conbo.study.workers", "sys.path.insert(0, sys.argv[1]); from workers")
    folder = workers.__file__.rpartition("/")[0]  # the module alone: the package imports torch, which takes seconds
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys{code}", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    assert not is_gone(name)
    process.kill()
    process.stdout.read()  # until its files are closed: it has ended, but is not reaped
    while not is_gone(name):
        time.sleep(0.01)
    process.communicate()
    assert is_gone(name)


def test_of_another_machine_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    name = re.sub(r":\d+:", ":999999999:", worker_name())
    assert is_gone(name)
    workers._machine.cache_clear()
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    assert not is_gone(name)
    workers._machine.cache_clear()


def test_a_worker_may_end_before_its_process() -> None:
    name = worker_name()
    assert not is_gone(name)
    retire(name)
    assert is_gone(name)


def test_a_number_that_another_process_has_now() -> None:
    host, pid, marks = worker_name().rsplit(":", 2)
    machine, start, chance = marks.split(".")
    assert is_gone(f"{host}:{pid}:{machine}.{int(start) - 1}.{chance}")


def test_a_damaged_name_is_of_nobody_who_is_known_to_have_ended() -> None:
    assert not any(is_gone(name) for name in ("", "abc", "a:b:c", "host:1:x", f"host:{10**30}:x.y.z"))
