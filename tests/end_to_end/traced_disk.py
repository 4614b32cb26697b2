"""What a disk holds after a power cut: a program's writes are traced, and those that no sync followed are dropped."""

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CALLS = "write,pwrite64,ftruncate,fsync,fdatasync"
CALL = re.compile(r'(\d+) +(\w+)\(\d+<((?:\\x..)+)>(?:, "((?:\\x..)*)")?(?:, (\d+))?(?:, (\d+))?')
RESUMED = re.compile(r"(\d+) +<\.\.\. f(?:data)?sync resumed>")


@dataclass
class File:
    """The content that is safe, and the changes since: writes at an offset, or cuts at one (None)."""

    safe: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        """All changes are safe now."""
        self.safe = self.after(self.unsynced)
        self.unsynced = []

    def after(self, changes: list[tuple[int, bytes | None]]) -> bytearray:
        """The content with some of the changes."""
        content = bytearray(self.safe)
        for offset, data in changes:
            if data is None:
                del content[offset:]
                continue
            content.extend(bytes(max(0, offset + len(data) - len(content))))
            content[offset : offset + len(data)] = data
        return content


def trace(code: str, *arguments: str | Path, log: Path) -> None:
    """Run Python code, and write its system calls to the log."""
    options = ["-f", "--seccomp-bpf", "-y", "-xx", "-s", "65536", "-e", f"trace={CALLS}", "-o", str(log)]
    subprocess.run(["strace", *options, sys.executable, "-c", code, *map(str, arguments)], check=True)


def moments(log: Path, database: Path, told: Path) -> Iterator[dict[str, File]]:
    """The files of the database at every moment when something was told."""
    files: dict[str, File] = {}
    waiting: dict[str, str] = {}  # files that a thread is syncing
    for line in log.read_text().splitlines():
        if resumed := RESUMED.match(line):
            files[waiting.pop(resumed[1])].sync()
        if (call := CALL.match(line)) is None:
            continue
        thread, name, path = call[1], call[2], bytes.fromhex(call[3].replace(r"\x", "")).decode()
        if path == str(told):
            yield files
        if path not in (str(database), f"{database}-wal"):
            continue
        file = files.setdefault(path, File())
        if name == "pwrite64":
            file.unsynced.append((int(call[6]), bytes.fromhex(call[4].replace(r"\x", ""))))
        elif name == "ftruncate":
            file.unsynced.append((int(call[5]), None))
        elif "unfinished" in line:
            waiting[thread] = path
        else:
            file.sync()


def cut_power(files: dict[str, File], folder: Path, chance: random.Random | None) -> Path:
    """Write the files as they may be found again, with some of the changes that no sync followed, or with none."""
    folder.mkdir()
    for path, file in files.items():
        kept = [change for change in file.unsynced if chance is not None and chance.random() < 0.5]
        (folder / Path(path).name).write_bytes(file.after(kept))
    return folder / Path(min(files, key=len)).name
