"""Sends HTTP requests to a service, and repeats them for up to a minute if it does not respond or is busy."""

import json
import random
import threading
import time
import warnings
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from conbo import errors
from conbo.errors import AccessError, ConboError, SettingError, StorageError, shortened
from conbo.values import is_number

PATIENCE = 60.0  # seconds for which requests are repeated while the service cannot be reached
LONGEST_PAUSE = 5.0  # longest pause between two attempts, in seconds
MAX_ANSWER = 200_000_000  # largest size of an answer, in bytes
BUSY = (429, 502, 503, 504)  # HTTP status codes after which a request is repeated


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects, because they would send the token to another address."""

    def redirect_request(self, *arguments: Any) -> None:
        """Return None, so that a redirect becomes an error."""


class Connection:
    """Sends HTTP requests to one service.

    Parameters
    ----------
    url
        Address of the service, such as ``http://127.0.0.1:8080``.
    token
        A token that ``conbo token`` has printed; None if the service needs none.
    timeout
        Seconds to wait for a response.

    Raises
    ------
    SettingError
        If the URL is malformed, does not begin with http:// or https://, or contains a user name, a password or a
        query; if the token is not valid; or if the timeout is out of range.
    """

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        parts = _parts(url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingError(f"`url` must be like 'https://conbo.example.org', but got {url!r}.")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise SettingError("`url` must have no user, password or query in it: a token is an argument of its own.")
        if token is not None and (not isinstance(token, str) or not token.isascii() or not token.isprintable()):
            raise SettingError("`token` must be a string that `conbo token` has printed.")
        if not (is_number(timeout) and 0 < timeout <= threading.TIMEOUT_MAX):
            raise SettingError(f"`0 < timeout <= {threading.TIMEOUT_MAX:.0f}` must hold, but got timeout={timeout!r}.")
        here = parts.hostname == "localhost" or parts.hostname.startswith("127.") or parts.hostname == "::1"
        if token is not None and parts.scheme == "http" and not here:
            warnings.warn(f"{url} is not encrypted: others on the way can read the token.", stacklevel=3)
        self.url, self._token, self._timeout = url.rstrip("/"), token, timeout
        self._opener = build_opener(_NoRedirects, *([ProxyHandler({})] if here else []))

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, again: bool = True) -> dict[str, Any]:
        """Send a request, and return the response.

        Parameters
        ----------
        method, path, body
            The HTTP method, the path after the URL of the service, and the content, which is sent as JSON.
        again
            Whether the request is repeated, for up to a minute, if there is no response or the service is busy.

        Returns
        -------
        dict
            The content of the response, read as JSON.

        Raises
        ------
        AccessError
            If the service refuses the request.
        StorageError
            If the service, or its database, cannot be reached.
        SettingError
            If `body` cannot be written as JSON.
        ConboError
            If the service reports another error. The exception's class is the one that the service names.
        """
        began, pause = time.monotonic(), 0.1
        while True:
            try:
                return self._send(method, path, body)
            except HTTPError as error:
                kind, text = _error(error)
                if error.code not in BUSY:
                    raise kind(text) from None
                wait, last = seconds_to_wait(error.headers.get("Retry-After", "0")), kind(text)
            except (URLError, OSError, HTTPException) as error:
                reason = getattr(error, "reason", error)
                wait, last = 0.0, StorageError(f"the service {self.url} cannot be reached: {reason}")
            if not again or time.monotonic() - began + wait > PATIENCE:
                raise last
            time.sleep(max(wait, pause * random.uniform(0.5, 1.0)))
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "User-Agent": "conbo"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            content = None if body is None else json.dumps(body, default=_plain).encode("ascii")
        except (TypeError, ValueError) as error:
            raise SettingError(f"what is sent must be plain numbers, strings, lists and dicts: {error}.") from error
        request = Request(f"{self.url}{path}", content, headers, method=method)
        with self._opener.open(request, timeout=self._timeout) as response:
            return _object(response.read(MAX_ANSWER))


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as a plain value; raise TypeError for anything else that JSON cannot hold."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _parts(url: object) -> SplitResult | None:
    """Return the parts of a URL; None if it is malformed."""
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if the port is not a number from 0 to 65535
    except ValueError:
        return None
    return parts


def _object(content: bytes) -> dict[str, Any]:
    """Return the JSON object in the content of a response; raise HTTPException if the content is anything else.

    For example, the content may be cut off, or be a page from a proxy instead of a response from the service.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise HTTPException(f"its answer must be a JSON object, but got {shortened(repr(content))}")
    return answer


def _error(error: HTTPError) -> tuple[type[ConboError], str]:
    """Return the class and the message of the error that the service reports."""
    try:
        record = json.loads(error.read(MAX_ANSWER))["error"]
        kind, text = getattr(errors, str(record["type"]), None), str(record["text"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        kind, text = None, f"the service answered with status {error.code}."
    if isinstance(kind, type) and issubclass(kind, ConboError):
        return kind, text
    return (AccessError if error.code in (401, 403, 429) else ConboError), text


def seconds_to_wait(retry_after: str) -> float:
    """Return the seconds to wait according to an HTTP Retry-After header, which holds a number of seconds or a date.

    The result is never negative, and 0 if the header is not valid.
    """
    with suppress(ValueError):
        seconds = float(retry_after)
        return seconds if seconds >= 0 else 0.0  # also 0 for NaN
    with suppress(ValueError, OverflowError):
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    return 0.0
