"""Writes whole files, so that an error or a reader in between never meets half of one."""

import os
import shutil
from pathlib import Path


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file in one step, so that an error leaves the old file unchanged; text is encoded in UTF-8."""
    with_content = content.encode("utf-8") if isinstance(content, str) else content
    path = Path(path)
    if path.exists() and not path.is_file():  # a pipe or a device, which cannot be replaced
        path.write_bytes(with_content)
        return
    path = Path(os.path.realpath(path))
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(with_content)
        if path.exists():
            shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
