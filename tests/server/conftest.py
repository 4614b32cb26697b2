"""A real server on loopback, in a thread, over an SQLite file."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conbo.server.app import create_app, server
from conbo.server.model_processes import NewExecutor
from conbo.server.tokens import TokenFile
from conbo.study import Study, open_study
from running_server import SPACE, Running, Start, threads


def _servers(folder: Path) -> Iterator[Start]:
    """Starts servers, by default over one file with one study, and ends them."""
    running = []

    def begin(storage: str = "", tokens: TokenFile | None = None, new: NewExecutor = threads) -> Running:
        path = storage or str(folder / "studies.db")
        if not storage:
            Study(SPACE, storage=path, seed=1)
        started = server(create_app(path, tokens, new), "127.0.0.1", 0, behind_proxy=tokens is not None)
        thread = threading.Thread(target=started.run, daemon=True)
        thread.start()
        while not started.started:
            assert thread.is_alive()
            time.sleep(0.005)
        running.append((started, thread))
        return Running(started.servers[0].sockets[0].getsockname()[1], path)

    yield begin
    for started, _ in running:
        started.should_exit = True
    for _, thread in running:
        thread.join()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers that end with the test."""
    yield from _servers(tmp_path)


@pytest.fixture
def service(start: Start) -> Running:
    """A server without tokens."""
    return start()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server without tokens, and with one trial, for requests that must change nothing."""
    servers = _servers(tmp_path_factory.mktemp("attacked"))
    service = next(servers)()
    assert service.post("/v1/studies/default/ask", {"lease": 600}).status == 200
    yield service
    assert len(open_study(service.storage).trials) == 1
    for _ in servers:
        pass
