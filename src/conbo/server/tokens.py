"""Access tokens of the service; a file stores their hashes.

A token has one of three rights. With "read", its holder can read studies; with "run", also ask for trials and tell
results; and with "admin", also create studies. A running service reads the file again whenever it changes. `access.py`
checks the token of each request.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from filelock import FileLock

from conbo.errors import RecordError, SettingError, StorageError, closest
from conbo.record_fields import Fields, errors_about, parse_json
from conbo.values import is_number

Right: TypeAlias = Literal["read", "run", "admin"]  # each right includes those before it
RIGHTS: tuple[Right, ...] = get_args(Right)

DAYS = 90.0  # number of days for which a token is valid by default
MAX_DAYS = 36_500.0  # largest number of days, so that the time at which a token expires is a valid date
SECRET_BYTES = 32
MAX_LABEL = 100  # largest number of characters in a label
DAY = 86_400.0  # seconds


@dataclass(frozen=True)
class Token:
    """The stored record of a token; the token itself is known only to its holder."""

    id: str
    right: Right
    sha256: str  # hash of the whole token
    created: float  # seconds since 1970
    expires: float
    label: str = ""

    def allows(self, right: Right) -> bool:
        """Return whether the token has this right."""
        return RIGHTS.index(right) <= RIGHTS.index(self.right)


class TokenFile:
    """The tokens in a file, which is read again whenever it has changed.

    Parameters
    ----------
    path
        The file, which need not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: tuple[int, int, int] | None = None  # time, size and inode of the file when it was last read
        self._tokens: tuple[Token, ...] = ()

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, including expired ones.

        Returns
        -------
        tuple of Token
            The tokens in the order in which they were made.

        Raises
        ------
        RecordError
            If the file is damaged.
        StorageError
            If the file cannot be read.
        """
        try:
            status = self.path.stat()
            look = (status.st_mtime_ns, status.st_size, status.st_ino)
            if look != self._seen:
                self._tokens = _read(self.path)
                self._seen = look
        except FileNotFoundError:
            self._seen, self._tokens = None, ()
        except OSError as error:
            raise StorageError(f"the token file '{self.path}' cannot be read: {error.strerror}.") from error
        return self._tokens

    def find(self, secret: str) -> Token | None:
        """Return the record of the token that a client has sent, or None if it is unknown or has expired.

        Hashes are compared in constant time, so that response times reveal nothing about the stored tokens.
        """
        digest = digest_of(secret)
        found = None
        for token in self.tokens():
            if hmac.compare_digest(token.sha256.encode(), digest.encode()):
                found = token
        return found if found is not None and time.time() < found.expires else None

    def valid(self, token_id: str) -> Token | None:
        """Return the token with this id, or None if it has expired or was revoked."""
        return next((t for t in self.tokens() if t.id == token_id and time.time() < t.expires), None)

    def add(self, right: Right, days: float = DAYS, label: str = "") -> str:
        """Make a new token; the file stores only its hash.

        Parameters
        ----------
        right
            "read", "run" or "admin"; each right includes those before it.
        days
            Days after which the token expires, at most 36,500.
        label
            Whose token it is; shown in the list of tokens.

        Returns
        -------
        str
            The token itself, which cannot be shown again.

        Raises
        ------
        SettingError
            If an argument is out of range.
        """
        if right not in RIGHTS:
            raise SettingError(f"`right` must be 'read', 'run' or 'admin', but got {right!r}.")
        if not (is_number(days) and 0 < days <= MAX_DAYS):
            raise SettingError(f"`0 < days <= {MAX_DAYS:.0f}` must hold, but got days={days!r}.")
        if len(label) > MAX_LABEL or not label.isprintable():
            raise SettingError(f"`label` must be printable and have at most {MAX_LABEL} characters, but got {label!r}.")
        token_id, now = secrets.token_hex(4), time.time()
        secret = f"conbo_{token_id}_{secrets.token_urlsafe(SECRET_BYTES)}"
        made = Token(token_id, right, digest_of(secret), now, now + days * DAY, label)
        with self._lock():
            self._write([*self.tokens(), made])
        return secret

    def revoke(self, token_id: str) -> None:
        """Remove a token; raise SettingError if there is none with this id."""
        with self._lock():
            known = self.tokens()
            if token_id not in [token.id for token in known]:
                raise SettingError(f"unknown token '{token_id}': {closest(token_id, [token.id for token in known])}")
            self._write([token for token in known if token.id != token_id])

    def _lock(self) -> FileLock:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(f"{self.path}.lock")

    def _write(self, tokens: Sequence[Token]) -> None:
        """Replace the file atomically, so that a service that is reading it sees either the old or the new file."""
        text = json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=1)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f"{self.path.name}.")  # readable by its owner only
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
        os.replace(name, self.path)


def digest_of(secret: str) -> str:
    """Return the hash of a token. A token has 256 random bits, so neither a salt nor a slow hash is needed."""
    return hashlib.sha256(secret.encode("utf-8", "backslashreplace")).hexdigest()


def _read(path: Path) -> tuple[Token, ...]:
    with errors_about(f"the token file '{path}' cannot be used"):
        record = Fields.of(parse_json(path.read_bytes()))
        return tuple(_token(Fields.of(item, "tokens")) for item in record.items("tokens"))


def _token(record: Fields) -> Token:
    record.only(tuple(field.name for field in fields(Token)))
    digest = record.text("sha256")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise RecordError("`sha256` must have 64 hexadecimal digits.")
    right = next(right for right in RIGHTS if right == record.text("right", RIGHTS))
    times = record.number("created"), record.number("expires")
    return Token(record.text("id"), right, digest, *times, record.text("label"))
