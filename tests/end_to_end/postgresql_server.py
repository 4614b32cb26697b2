"""PostgreSQL for the tests: a server of our own from whatever is installed, or one that runs already.

Its programs are looked for in the package `pgserver`, which is among the developers' requirements where it has wheels,
then in the folders of Debian and Homebrew, then on the path.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url

from missing_tools import skip_without

START_SECONDS = 30.0
FOLDERS = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin")


class PostgresServer:
    """A server of its own in a folder; it can be stopped and started like any other."""

    def __init__(self, folder: Path, listen: str = "127.0.0.1") -> None:
        self._folder, self._listen = folder, listen
        self._as_user = _unprivileged()
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
                shutil.chown(path, self._as_user["user"], self._as_user["group"])
        command: list[str | Path] = [self._binaries / "initdb", "-D", data, "--username=conbo", "--pwfile", password]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._as_user)
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all all scram-sha-256\n")


class ForeignServer:
    """A server that somebody else runs, and where we may create databases."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql")
        self._prefix = f"conbo_test_{secrets.token_hex(4)}"  # tests of other processes are at work there too
        self._databases: list[str] = []

    def url(self, database: str) -> str:
        """What a study takes as its storage."""
        return self._url.set(database=database).render_as_string(hide_password=False)

    def new_database(self) -> str:
        """The name of an empty database."""
        name = f"{self._prefix}_{len(self._databases)}"
        self._execute(f"CREATE DATABASE {name}")
        self._databases.append(name)
        return name

    def drop_databases(self) -> None:
        """Leave nothing behind, though clients may still be connected."""
        for name in self._databases:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _execute(self, command: str) -> None:
        with psycopg.connect(self._url.render_as_string(hide_password=False), autocommit=True) as connection:
            connection.execute(command.encode())


def _unprivileged() -> dict[str, Any]:
    """The user that runs the server, as arguments of Popen; empty if it is ours, because only root is refused."""
    if os.geteuid() != 0:
        return {}
    import pwd  # not on Windows

    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _binaries(folder: Path) -> Path:
    """Where `initdb` and `postgres` are; the test is skipped where there are none."""
    package = find_spec("pgserver")
    if package is not None and package.origin is not None:
        home = Path(package.origin).parent
        if os.geteuid() != 0:
            return home / "pginstall" / "bin"
        # copied, because an unprivileged user need not be able to read the environment
        shutil.copytree(home / "pginstall", folder / "pgserver" / "pginstall")
        shutil.copytree(home.parent / "pgserver.libs", folder / "pgserver.libs")
        return folder / "pgserver" / "pginstall" / "bin"
    for pattern in FOLDERS:
        if found := sorted(Path("/").glob(pattern.lstrip("/")), key=_release):
            return found[-1]
    initdb = shutil.which("initdb")
    if initdb is None:
        install = "brew install postgresql" if sys.platform == "darwin" else "sudo apt-get install --yes postgresql"
        skip_without("PostgreSQL", install)
    return Path(initdb).resolve().parent


def _release(folder: Path) -> float:
    """The release of PostgreSQL that a folder such as 16/bin or postgresql@16/bin belongs to."""
    return float(folder.parent.name.rpartition("@")[2])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
