"""Real databases and real processes, which a test may kill."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgresql_server import ForeignServer, PostgresServer
from worker_processes import Processes
from worker_programs import PHASES


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A table of the moments at which workers were killed."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    rows = [value for report in reports for name, value in report.user_properties if name == "kills"]
    if not rows:
        return
    moments = PHASES.values()
    terminalreporter.section("workers killed: nothing lost, nothing doubled, lone studies exact")
    terminalreporter.line("".join(f"{word:>20}" for word in ("workers", *moments, "all")))
    total = {"of": "all", **{moment: sum(row.get(moment, 0) for row in rows) for moment in moments}}
    for row in (*sorted(rows, key=lambda row: row["of"]), total):
        numbers = [row.get(moment, 0) for moment in moments]
        terminalreporter.line("".join(f"{word!s:>20}" for word in (row["of"], *numbers, sum(numbers))))
