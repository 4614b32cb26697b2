"""Sessions of the dashboard: a user signs in with a token, and gets a cookie that scripts cannot read."""

import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from conbo.server.tokens import Token, TokenFile

COOKIE = "conbo_session"
HOURS = 12.0  # hours for which a session lasts, unless its token expires earlier
MAX_SESSIONS = 1000  # when there are more, the oldest session is ended


@dataclass(frozen=True)
class Session:
    """A session: the id of the token that opened it, and the time at which it ends."""

    token_id: str
    expires: float  # seconds since 1970


class Sessions:
    """The sessions of the dashboard, in the memory of this process.

    A session ends after `HOURS` hours, when the user signs out, when its token expires or is revoked, or when the
    process ends. If there are more than `MAX_SESSIONS` sessions, the oldest one ends.
    """

    def __init__(self, tokens: TokenFile) -> None:
        self._tokens = tokens
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # by the hash of the cookie

    def open(self, token: Token) -> str:
        """Open a session for the holder of a token, and return the value of its cookie."""
        value = secrets.token_urlsafe(32)
        self._sessions[_hash(value)] = Session(token.id, min(token.expires, time.time() + 3600 * HOURS))
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return value

    def find(self, value: str) -> Token | None:
        """Return the token of the session with this cookie, or None if the session or the token is no longer valid."""
        session = self._sessions.get(_hash(value))
        if session is None or time.time() >= session.expires:
            self.close(value)
            return None
        return self._tokens.valid(session.token_id)

    def close(self, value: str) -> None:
        """End the session with this cookie."""
        self._sessions.pop(_hash(value), None)


def cookie_value(header: str) -> str | None:
    """Return the value of the session's cookie in a Cookie header, or None if there is none."""
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def cookie(value: str, secure: bool) -> str:
    """Return the content of the Set-Cookie header that sets the session's cookie; an empty `value` removes it."""
    kept = f"Max-Age={int(3600 * HOURS)}" if value else "Max-Age=0"
    return f"{COOKIE}={value}; Path=/; {kept}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def _hash(value: str) -> str:
    """Return the hash of a cookie's value.

    Sessions are looked up by this hash, so that response times reveal nothing about valid values.
    """
    return hashlib.sha256(value.encode("utf-8", "backslashreplace")).hexdigest()
