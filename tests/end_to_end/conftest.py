"""Real databases and real processes, which a test may kill."""

import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgresql_server import PostgresServer
from worker_processes import Processes


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    # not pytest's temporary folder, which the server's user may not enter
    with tempfile.TemporaryDirectory(prefix="conbo-postgresql-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        yield server
        server.stop(signal.SIGQUIT)


@pytest.fixture
def new_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes empty databases."""

    def new(kind: str) -> str:
        if kind == "postgresql":
            server: PostgresServer = request.getfixturevalue("postgresql")
            return server.url(server.new_database())
        return str(tmp_path / f"{len(list(tmp_path.glob('*.db')))}.db")

    return new


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path / "workers.log")
    yield started
    started.kill_all()
