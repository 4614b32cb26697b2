"""The names of workers, and whether a worker on this machine is still alive."""

import hashlib
import os
import re
import secrets
import socket
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_RETIRED: set[str] = set()  # names of workers of this process that have ended


def worker_name() -> str:
    """A unique name for a worker, by which other processes of this machine can tell whether the worker has ended.

    The name consists of the host name, the process id, a hash that identifies the machine, the process's start time,
    and a random part.
    """
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_machine()}.{_start(pid) or 0}.{secrets.token_hex(3)}"


def process_of(worker: str) -> str:
    """The host name and process id in the name of a worker; for a client of the HTTP service, the client's label."""
    return re.sub(r":\w+\.\w+\.\w+$", "", worker.partition("/")[0])


def retire(worker: str) -> None:
    """Record that a worker of this process has ended, though the process has not."""
    _RETIRED.add(worker)


def is_gone(worker: str) -> bool:
    """Whether the worker is known to have ended, either with its process or because it was retired."""
    if worker in _RETIRED:
        return True
    parts = re.fullmatch(r".*:(\d{1,9}):(\w+)\.(\w+)\.\w+", worker, re.DOTALL)
    if parts is None or os.name != "posix" or parts[2] != _machine():  # a worker of another machine, or a damaged name
        return False
    pid, start = int(parts[1]), parts[3]
    try:
        os.kill(pid, 0)  # signal 0 only asks whether the process exists
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return start != "0" and _start(pid) not in (start, None)  # its process number now belongs to another process


@lru_cache(maxsize=1)
def _machine() -> str:
    """A hash that is the same for all processes of one machine or, inside a container, of this container.

    These are the processes that see each other's process ids. The host name alone does not identify them, because
    containers may have the same host name, even on one machine.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):  # the file exists only on Linux
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _start(pid: int) -> str | None:
    """The time at which a process started, in clock ticks since the machine booted; None if it is not known.

    The result is "ended" for a zombie: a process that has ended, but whose parent has not yet read its exit status.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the process name before it may contain anything
    return "ended" if fields[0] in "ZX" else fields[19]
