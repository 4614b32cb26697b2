"""A real server on loopback, in a thread, over an SQLite file."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conbo.server.app import create_app, server
from conbo.server.model_processes import NewExecutor
from conbo.server.tokens import TokenFile
from conbo.study import Study
from running_server import SPACE, Running, Start, threads


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers, by default over one file with one study, that end with the test."""
    running = []

    def begin(storage: str = "", tokens: TokenFile | None = None, new: NewExecutor = threads) -> Running:
        path = storage or str(tmp_path / "studies.db")
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
def service(start: Start) -> Running:
    """A server without tokens."""
    return start()
