"""Workers on two machines, as network namespaces where these can be had, share one study over the network."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from postgresql_server import PostgresServer
from worker_processes import Processes, wait_for_growth
from worker_programs import LEASE, hold, reward, run_to

from conbo import open_study

PATIENCE = 120.0  # seconds
PROGRAM = """
import sys, time
from pathlib import Path
import conbo

def profit(state, action):
    with open("evaluated", "a") as journal:
        journal.write("once\\n")
    time.sleep(0.1)
    while Path("wait").exists():
        time.sleep(0.05)
    return -((action["x"] - state["s"]) ** 2) + float(sys.argv[3])

space = conbo.Space(states={"s": conbo.Real(0, 1)}, actions={"x": conbo.Real(0, 1)})
study = conbo.Study(space, method="uniform", storage=sys.argv[1])
study.run(profit, evaluations=int(sys.argv[2]), workers=2, lease=3.0, progress=False)
"""


@dataclass(frozen=True)
class Machine:
    """A folder and an environment of its own, and where it can be had a network and a process table of its own."""

    folder: Path
    enter: tuple[str, ...]  # the command that runs another one there
    database_host: str
    link: str | None  # the near end of its cable

    def start(self, server: PostgresServer, database: str, evaluations: int, bonus: float) -> "subprocess.Popen[bytes]":
        storage = server.url(database, self.database_host)
        command = [*self.enter, sys.executable, "-c", PROGRAM, storage, str(evaluations), str(bonus)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "OMP_NUM_THREADS": "1"}
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)

    @property
    def evaluated(self) -> int:
        journal = self.folder / "evaluated"
        return len(journal.read_text().splitlines()) if journal.exists() else 0


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    """Two of them, with the same host name, as containers often have, and the same process numbers."""
    folders = [tmp_path / "machine1", tmp_path / "machine2"]
    for folder in folders:
        folder.mkdir()
    try:
        machines = [connected(folder, i) for i, folder in enumerate(folders)]
    except (subprocess.CalledProcessError, FileNotFoundError):  # only root may, on Linux with iproute2
        machines = [Machine(folder, (), "127.0.0.1", None) for folder in folders]
    yield machines
    for i in range(2):
        # the cable at once, because a namespace takes its time to go
        for command in (f"link delete {cable(i)}", f"netns delete {namespace(i)}"):
            with suppress(subprocess.CalledProcessError, FileNotFoundError):
                ip(command)


def connected(folder: Path, i: int) -> Machine:
    """A machine in a network namespace, with a cable to this one."""
    space, near_end = namespace(i), cable(i)
    network = f"198.18.{os.getpid() % 256}."  # set aside for tests of networks
    near, far = network + str(4 * i + 1), network + str(4 * i + 2)
    ip(f"netns add {space}")
    ip(f"link add {near_end} type veth peer name eth0 netns {space}")
    ip(f"address add {near}/30 dev {near_end}")
    ip(f"link set {near_end} up")
    ip(f"-n {space} address add {far}/30 dev eth0")
    ip(f"-n {space} link set eth0 up")
    ip(f"-n {space} link set lo up")
    own = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
    named = ("sh", "-c", 'echo node > /proc/sys/kernel/hostname && exec "$@"', "sh")
    return Machine(folder, ("ip", "netns", "exec", space, *own, *named), near, near_end)


def namespace(i: int) -> str:
    return f"conbo-{os.getpid()}-{i}"


def cable(i: int) -> str:
    return f"conbo{os.getpid()}{'ab'[i]}"


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True, capture_output=True)


@pytest.fixture
def server(machines: list[Machine]) -> Iterator[PostgresServer]:
    """A database that all machines can reach."""
    with tempfile.TemporaryDirectory(prefix="conbo-postgresql-") as folder:
        server = PostgresServer(Path(folder), listen=",".join({"127.0.0.1", *(m.database_host for m in machines)}))
        server.start()
        yield server
        server.stop(signal.SIGQUIT)


def test_two_machines(machines: list[Machine], server: PostgresServer) -> None:
    database = server.new_database()
    finish([machine.start(server, database, 24, bonus=0.0) for machine in machines], machines)
    trials = open_study(server.url(database)).trials
    assert [t.status for t in trials] == ["completed"] * 24
    assert all(t.reward == reward(t.state, t.action) for t in trials)
    assert all(machine.evaluated for machine in machines)
    assert sum(machine.evaluated for machine in machines) == 24, "each once"
    assert len({t.worker for t in trials}) >= 2, "two machines are told apart, whatever their names"


def test_a_machine_that_is_cut_off_for_longer_than_its_lease(machines: list[Machine], server: PostgresServer) -> None:
    cut, other = machines
    if cut.link is None:
        pytest.skip("a cable can only be pulled where network namespaces can be had")
    database = server.new_database()
    (cut.folder / "wait").touch()
    first = cut.start(server, database, 10, bonus=1.0)
    wait_until(lambda: cut.evaluated == 2, cut)
    ip(f"link set {cut.link} down")
    finish([other.start(server, database, 10, bonus=0.0)], machines)
    trials = open_study(server.url(database)).trials
    assert [t.status for t in trials] == ["completed"] * 10, "with those of the machine that is away"
    ip(f"link set {cut.link} up")
    (cut.folder / "wait").unlink()
    finish([first], machines)
    trials = open_study(server.url(database)).trials
    assert [t.reward for t in trials] == [reward(t.state, t.action) for t in trials], "the first results stand"
    assert [t.late for t in trials if t.late is not None] == [t.reward + 1.0 for t in trials if t.attempts == 2]
    assert sum(t.late is not None for t in trials) == 2


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_worker_that_was_only_slow(
    kind: str, new_storage: Callable[[str], str], processes: Processes, tmp_path: Path
) -> None:
    storage, holding, go_on, evaluated = new_storage(kind), tmp_path / "holding", tmp_path / "go_on", tmp_path / "calls"
    slow = processes.start(hold, storage, 6, 1.0, holding, go_on)
    wait_for_growth(holding, processes)
    os.kill(slow.pid or 0, signal.SIGSTOP)  # its heart stops, but it is not dead
    processes.finish([processes.start(run_to, storage, 6, 0.0, evaluated, LEASE)])
    os.kill(slow.pid or 0, signal.SIGCONT)
    go_on.touch()
    processes.finish([slow])
    first, *others = open_study(storage).trials
    assert (first.reward, first.late) == (reward(first.state, first.action), reward(first.state, first.action) + 1.0)
    assert first.attempts == 2
    assert [t.status for t in others] == ["completed"] * 5
    assert all(t.late is None and t.attempts == 1 for t in others)


def finish(programs: "list[subprocess.Popen[bytes]]", machines: list[Machine]) -> None:
    try:
        for program in programs:
            status = program.wait(PATIENCE)
            assert status == 0, "\n".join(log.read_text() for m in machines for log in m.folder.glob("log"))
    finally:
        for program in programs:
            program.kill()


def wait_until(condition: Callable[[], bool], machine: Machine) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, (machine.folder / "log").read_text()
        time.sleep(0.02)
