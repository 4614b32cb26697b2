"""A PostgreSQL server for the tests, started from the package `pgserver` or from Debian's `postgresql`."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

START_SECONDS = 30.0


class PostgresServer:
    """A server of its own in a folder; it can be stopped and started like any other."""

    def __init__(self, folder: Path, listen: str = "127.0.0.1") -> None:
        self._folder, self._listen = folder, listen
        # the server refuses to run as root
        self._as_user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        self._binaries = _binaries(folder)
        self._port = _free_port()
        self._password = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        self._n_databases = 0
        self._create()

    def url(self, database: str, host: str = "127.0.0.1", driver: str = "+psycopg") -> str:
        """What a study takes as its storage."""
        return f"postgresql{driver}://conbo:{self._password}@{host}:{self._port}/{database}"

    def new_database(self) -> str:
        """The name of an empty database."""
        self._n_databases += 1
        name = f"test_{self._n_databases}"
        with psycopg.connect(self.url("postgres", driver=""), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return name

    def start(self) -> None:
        """Start, and return when it answers."""
        settings = {
            "listen_addresses": self._listen,
            "port": self._port,
            "unix_socket_directories": "",
            "fsync": "off",  # processes die in these tests, the machine does not
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._folder / "data", *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                **self._as_user,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres", driver="")).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError((self._folder / "server.log").read_text()) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Break off all connections and end; SIGQUIT does not even tidy up."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None

    def _create(self) -> None:
        data, password = self._folder / "data", self._folder / "password"
        data.mkdir()
        password.write_text(self._password)
        for path in (self._folder, data, password):
            if self._as_user:
                shutil.chown(path, "nobody", "nogroup")
        command: list[str | Path] = [self._binaries / "initdb", "-D", data, "--username=conbo", "--pwfile", password]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._as_user)
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all all scram-sha-256\n")


def _binaries(folder: Path) -> Path:
    """Where `postgres` is; the test is skipped where there is none."""
    package = find_spec("pgserver")
    if package is not None and package.origin is not None:
        home = Path(package.origin).parent
        # copied, because an unprivileged user need not be able to read the environment
        shutil.copytree(home / "pginstall", folder / "pgserver" / "pginstall")
        shutil.copytree(home.parent / "pgserver.libs", folder / "pgserver.libs")
        return folder / "pgserver" / "pginstall" / "bin"
    if debian := sorted(Path("/usr/lib/postgresql").glob("*/bin")):
        return debian[-1]
    pytest.skip("PostgreSQL is missing: install the package `pgserver` from PyPI, or `postgresql` from Debian.")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
