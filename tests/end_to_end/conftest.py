"""Real databases and real processes, which a test may kill."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgresql_server import ForeignServer, PostgresServer
from worker_processes import Processes


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    """A server of our own, which a test may stop and start."""
    # not pytest's temporary folder, which the server's user may not enter
    with tempfile.TemporaryDirectory(prefix="conbo-postgresql-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        yield server
        server.stop(signal.SIGQUIT)


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Iterator[PostgresServer | ForeignServer]:
    """A server for tests that need only a database: the one at `CONBO_POSTGRESQL`, else our own."""
    if url := os.environ.get("CONBO_POSTGRESQL"):
        server = ForeignServer(url)
        yield server
        server.drop_databases()
    else:
        yield request.getfixturevalue("postgresql")


@pytest.fixture
def new_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes empty databases."""

    def new(kind: str) -> str:
        if kind == "postgresql":
            server: PostgresServer | ForeignServer = request.getfixturevalue("databases")
            return server.url(server.new_database())
        return str(tmp_path / f"{len(list(tmp_path.glob('*.db')))}.db")

    return new


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path / "workers.log")
    yield started
    started.kill_all()
