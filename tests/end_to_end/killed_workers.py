"""Workers of three kinds that say what they are doing, so that a test can kill them at moments of its choice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worker_processes import Processes
from worker_programs import LIVELY, PHASES, lively

HERE = Path(__file__).parent
PATIENCE = 120.0  # seconds in which a worker must get to the moment
MISSES = 5  # times that a moment may have passed before the worker stops


@dataclass
class Chunk:
    """What a study has, and what its workers write down."""

    storage: str
    method: str
    folder: Path
    width: int = 1  # evaluations at once, of a Dask cluster
    scheduler: Path | None = None
    kills: list[str] = field(default_factory=list)  # the phase of every kill

    @property
    def told(self) -> Path:
        """The journal of acknowledged rewards."""
        return self.folder / "told"

    @property
    def evaluated(self) -> Path:
        """The journal of evaluations."""
        return self.folder / "evaluated"

    def lines(self, journal: Path) -> list[Any]:
        """What was written; the last line may be of a process that was killed while it wrote."""
        text = journal.read_text() if journal.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]


class Worker:
    """A process and the file with its phase."""

    def __init__(self, process: Any, pid: int, phase: Path) -> None:
        self._process, self._pid, self._phase = process, pid, phase

    @property
    def phase(self) -> str:
        """What it does now, or did when it died."""
        return PHASES[self._phase.read_bytes()[:1]]

    def kill_in(self, phase: str, chance: random.Random, start_up: float) -> str:
        """Kill it in this phase, if that can be caught; the phase that it was in."""
        if phase == "start-up":
            time.sleep(start_up * chance.random())
            os.kill(self._pid, signal.SIGSTOP)
        else:
            self._stop_in(phase)
        was = self.phase
        self.kill()
        return was

    def _stop_in(self, phase: str) -> None:
        deadline = time.monotonic() + PATIENCE
        for _ in range(MISSES):
            while self.phase != phase:
                assert time.monotonic() < deadline, f"the worker does not come to its {phase}"
                assert self._process.poll() is None if hasattr(self._process, "poll") else self._process.is_alive()
                time.sleep(0.0005)
            time.sleep(0.004 * random.random())
            os.kill(self._pid, signal.SIGSTOP)
            if self.phase == phase:
                return
            os.kill(self._pid, signal.SIGCONT)
        os.kill(self._pid, signal.SIGSTOP)

    def kill(self) -> None:
        """End it as a power cut would."""
        os.kill(self._pid, signal.SIGKILL)
        wait = self._process.wait if hasattr(self._process, "wait") else self._process.join
        wait()


def start(kind: str, chunk: Chunk, processes: Processes) -> Worker:
    """A worker of this kind; `forked` is fast, `program` imports everything, `dask` sends evaluations elsewhere."""
    phase = chunk.folder / f"{time.monotonic_ns()}.phase"
    phase.write_bytes(LIVELY["start-up"])
    arguments = [chunk.storage, chunk.method, phase, chunk.told, chunk.evaluated]
    if kind == "program":
        code = "import sys; from worker_programs import lively; lively(*sys.argv[1:])"
        with (chunk.folder / "programs.log").open("ab") as log:
            command = [sys.executable, "-c", code, *map(str, arguments)]
            process = subprocess.Popen(command, cwd=HERE, stdout=log, stderr=log)
        return Worker(process, process.pid, phase)
    if kind == "dask":
        arguments += [chunk.scheduler, chunk.width]
    forked = processes.start(lively, *arguments)
    return Worker(forked, forked.pid or 0, phase)


class DaskCluster:
    """A scheduler and workers of one thread each, in processes of their own."""

    def __init__(self, folder: Path, n: int) -> None:
        self.address = folder / "scheduler.json"
        self._log = (folder / "cluster.log").open("ab")
        self._common = ["--scheduler-file", str(self.address), "--no-dashboard"]
        # a point may lose more workers than Dask would put up with
        environment = os.environ | {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1000"}
        host = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
        self._scheduler = self._start("dask_scheduler", *host, env=environment)
        deadline = time.monotonic() + PATIENCE
        while not self.address.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.workers = [self._worker() for _ in range(n)]

    def kill_one(self, pid: int) -> None:
        """Kill the worker with this number, and start another one."""
        (which,) = (i for i, worker in enumerate(self.workers) if worker.pid == pid)
        self.workers[which].kill()
        self.workers[which].wait()
        self.workers[which] = self._worker()

    def close(self) -> None:
        """End all of them."""
        for process in (*self.workers, self._scheduler):
            process.kill()
            process.wait()
        self._log.close()

    def _worker(self) -> "subprocess.Popen[bytes]":
        return self._start("dask_worker", "--nthreads", "1", "--no-nanny")

    def _start(self, command: str, *options: str, **settings: Any) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", f"distributed.cli.{command}", *self._common, *options]
        return subprocess.Popen(words, stdout=self._log, stderr=self._log, **settings)


@contextmanager
def dask_cluster(kind: str, folder: Path) -> Iterator[DaskCluster | None]:
    """A cluster, where this kind of worker needs one."""
    if kind != "dask":
        yield None
        return
    cluster = DaskCluster(folder, 2)
    try:
        yield cluster
    finally:
        cluster.close()
