"""A soak test of the service: 100 clients on loopback, of which 50 ask and tell and 50 read.

    python benchmarks/service.py                  ten minutes
    python benchmarks/service.py --minutes 1 --clients 20 --json

The service is `conbo serve` in its own process, with an SQLite file and a token for each client. Each reader sends one
request per second, at random for the status, a page of trials or the policy. At the end, every reward that a client
told must be in the database exactly once and unchanged, and no trial may have been given to two clients.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import conbo
from conbo.server.tokens import TokenFile
from conbo.study import open_study

READ_EVERY = 1.0  # seconds between two requests of a reader
SPACE = conbo.Space(
    states={"demand": conbo.Real(10, 100), "price": conbo.Real(3, 8)}, actions={"stock": conbo.Real(0, 150)}
)
NOISE = 5.0  # standard deviation of a reward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=100, help="half of them ask and tell, half read")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = soak(Path(folder), options.minutes, options.clients)
    print(json.dumps(row) if options.json else "\n".join(f"{name:<28} {value}" for name, value in row.items()))


def soak(folder: Path, minutes: float, clients: int) -> dict[str, Any]:
    storage, tokens = str(folder / "soak.db"), TokenFile(folder / "tokens.json")
    conbo.Study(SPACE, storage=storage, seed=0)
    n_reading = clients // 2
    secrets = [tokens.add("read" if i < n_reading else "run") for i in range(clients)]
    service, url = _serve(storage, str(tokens.path))
    until = time.time() + 60 * minutes
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    groups = ((_read, secrets[:n_reading]), (_ask_and_tell, secrets[n_reading:]))
    processes = [context.Process(target=_many, args=(*group, url, until, answers)) for group in groups]
    try:
        for process in processes:
            process.start()
        reports = [report for _ in processes for report in answers.get()]
        for process in processes:
            process.join()
    finally:
        service.terminate()
        service.wait()
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    return _row(storage, reports, minutes, clients, cpu.ru_utime + cpu.ru_stime)


def _serve(storage: str, tokens: str) -> tuple[subprocess.Popen[str], str]:
    program = [sys.executable, "-c", "from conbo.cli import main; main()", "serve", "--port", "0"]
    words = [*program, "--storage", storage, "--token-file", tokens]
    service = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert service.stderr is not None
    line = service.stderr.readline()
    threading.Thread(target=lambda: [print(more, end="", file=sys.stderr) for more in service.stderr or ()]).start()
    return service, line.split()[1].rstrip("/")


Report = tuple[str, Any]  # kind of event, and its duration in seconds or other data


def _many(work: Callable[..., None], secrets: list[str], url: str, until: float, answers: Any) -> None:
    """Run one client for each token in `secrets`, as threads of this process, until the time `until`.

    Each client repeats `work`, and the reports of all clients go to the queue `answers`.
    """
    reports: list[Report] = []

    def one(number: int, secret: str) -> None:
        client = conbo.Client(url, secret, worker=f"client-{number}")
        chance = random.Random(number)
        time.sleep(chance.random() * READ_EVERY)
        while time.time() < until:
            try:
                work(client, chance, reports)
            except Exception as error:
                reports.append(("error", f"{type(error).__name__}: {error}"))

    threads = [threading.Thread(target=one, args=pair) for pair in enumerate(secrets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.put(reports)


def _read(client: conbo.Client, chance: random.Random, reports: list[Report]) -> None:
    kind = chance.choice(["status", "trials", "policy"])
    began = time.monotonic()
    try:
        if kind == "status":
            client.status()
        elif kind == "trials":
            client._get("/trials?limit=100")
        else:
            client.policy(fresh=False)({"demand": chance.uniform(10, 100), "price": chance.uniform(3, 8)})
    except conbo.errors.ConboError as error:
        if "at least one completed trial" not in str(error):
            raise
    reports.append((kind, time.monotonic() - began))
    time.sleep(READ_EVERY)


def _ask_and_tell(client: conbo.Client, chance: random.Random, reports: list[Report]) -> None:
    began = time.monotonic()
    trial = client.ask(lease=600)
    reports.append(("ask", time.monotonic() - began))
    reports.append(("given", trial.number))
    reward = chance.gauss(_profit(trial.state, trial.action), NOISE)
    began = time.monotonic()
    client.tell(trial, reward)
    reports.append(("tell", time.monotonic() - began))
    reports.append(("told", (trial.number, reward)))


def _profit(state: Mapping[str, Any], action: Mapping[str, Any]) -> float:
    return float(state["price"] * min(state["demand"], action["stock"]) - 2 * action["stock"])


def _row(storage: str, reports: list[Report], minutes: float, clients: int, cpu: float) -> dict[str, Any]:
    trials = {trial.number: trial for trial in open_study(storage).trials}
    told = [what for kind, what in reports if kind == "told"]
    errors = [what for kind, what in reports if kind == "error"]
    given = Counter(what for kind, what in reports if kind == "given")
    reads = [seconds for kind, seconds in reports if kind in ("status", "trials", "policy")]
    row: dict[str, Any] = {
        "clients": clients,
        "minutes": minutes,
        "trials told": len(told),
        "lost trials": sum(number not in trials or trials[number].reward != reward for number, reward in told),
        "doubled trials": sum(count > 1 for count in given.values()),
        "completed in the database": sum(trial.status == "completed" for trial in trials.values()),
        "errors": len(errors),
        "first error": errors[0] if errors else None,
        "reads": len(reads),
        "reads, 95th percentile [s]": _percentile(reads),
    }
    for kind in ("status", "trials", "policy", "ask", "tell"):
        row[f"{kind}, 95th percentile [s]"] = _percentile([seconds for one, seconds in reports if one == kind])
    return {**row, "CPU of all processes [s]": round(cpu, 1)}


def _percentile(values: list[float]) -> float | None:
    return round(statistics.quantiles(values, n=20)[-1], 4) if len(values) > 1 else None


if __name__ == "__main__":
    main()
