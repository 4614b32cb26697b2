"""Access control: every request passes the checks of `Guard` before the application handles it.

A browser on this machine can reach the service even if no other machine can, so any website that is open in the
browser could send requests to the service. `Guard` therefore checks the headers Origin and Sec-Fetch-Site, which reveal
requests from other sites. Requests that write must be sent as JSON, which an HTML form cannot do. Without a token file,
the header Host must also name this machine, which prevents DNS rebinding.
"""

import asyncio
import ipaddress
import json
import logging
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from conbo.errors import AccessError, SettingError
from conbo.server.paths import encoded_path
from conbo.server.rates import RateLimit
from conbo.server.sessions import Sessions, cookie_value
from conbo.server.tokens import Right, Token, TokenFile

MAX_BODY = 1_048_576  # largest size of a request's body, in bytes
BODY_SECONDS = 30.0  # seconds within which a body must have arrived
RATE, BURST = 200.0, 400.0  # requests per second that one caller may send in the long run, and requests in one burst
WRONG_TOKEN = 20.0  # a request with a wrong token counts as this many requests in the rate limit

READS = ("GET", "HEAD")
# paths that need no token, because they show nothing of a study
PUBLIC = ("/", "/healthz", "/openapi.json", "/v1/session")
PUBLIC_FOLDERS = ("/assets/", "/studies/")  # need no token either, because the pages themselves ask for one

NOTHING_ALLOWED = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
HEADERS = {
    "content-security-policy": NOTHING_ALLOWED,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

INTERNAL = "the service met an error of its own, which its log explains."

_log = logging.getLogger("conbo.server")


@dataclass(frozen=True)
class Caller:
    """The sender of a request, and its rights. If the service has no token file, every caller may do everything."""

    token: Token | None  # token of the request, if it has one
    tokens: TokenFile | None  # all tokens that the service knows; None if it asks for none

    def allows(self, right: Right) -> bool:
        """Return whether the caller has this right."""
        return self.tokens is None or (self.token is not None and self.token.allows(right))

    def is_valid(self) -> bool:
        """Return whether the caller's token is still valid; tokens expire and can be revoked."""
        return self.tokens is None or (self.token is not None and self.tokens.valid(self.token.id) is not None)


class RefusedError(AccessError):
    """Raised to refuse a request.

    Parameters
    ----------
    status
        HTTP status of the response, such as 403.
    text
        Error message for the client.
    headers
        Further headers of the response.
    """

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, dict(headers or {})


def is_loopback(host: str) -> bool:
    """Return whether a host name or address always means this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_host(host: str, tokens: TokenFile | None) -> None:
    """Raise SettingError if other machines could reach a service that asks for no token.

    Parameters
    ----------
    host
        Host name or address on which the service will listen.
    tokens
        The tokens that the service knows; None if it asks for none.

    Raises
    ------
    SettingError
        If there are no tokens and the host is not a loopback address.
    """
    if tokens is None and not is_loopback(host):
        rule = "a service without a token file must be on a loopback address such as 127.0.0.1"
        raise SettingError(f"{rule}, but got host={host!r}: `conbo token --right run --file F` makes a token.")


class Guard:
    """ASGI middleware that checks the host, origin, token, rate, content type and size of every request.

    Parameters
    ----------
    app
        The application that answers the allowed requests. It finds the `Caller` in ``scope["state"]["caller"]``.
    tokens
        The tokens that the service knows; None if it asks for none.
    sessions
        The sessions of the dashboard; None if there are no tokens.
    end
        Function that ends the event streams. `Guard` only keeps it, and `Server` calls it at shutdown.
    """

    def __init__(
        self, app: ASGIApp, tokens: TokenFile | None, sessions: Sessions | None, end: Callable[[], None]
    ) -> None:
        self._app, self._tokens, self._sessions = app, tokens, sessions
        self.end = end
        self._rates = RateLimit(RATE, BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it to the application or answer with an error."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = _Answer(send)
        try:
            scope["path"] = encoded_path(scope)
            headers = _headers(scope)
            self._check_origin(scope["method"], headers)
            scope.setdefault("state", {})["caller"] = self._caller(scope, headers)
            if scope["method"] not in READS:
                receive = _replay(await _body(headers, receive), receive)
            await self._app(scope, receive, answer)
        except RefusedError as refusal:
            await answer.error(refusal.status, "AccessError", refusal.text, refusal.headers)
        except Exception:
            _log.exception("a request failed")
            await answer.error(500, "InternalError", INTERNAL)

    def _check_origin(self, method: str, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "")
        if self._tokens is None and not is_loopback(_parts(f"//{host}").hostname or ""):
            raise RefusedError(403, f"the Host of a request must be this machine, but got {host!r}.")
        origin = headers.get("origin")
        if origin is not None and (not host or _parts(origin).netloc != host):
            raise RefusedError(403, f"a request must come from the service's own pages, but its Origin is {origin!r}.")
        other_site = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        follows_link = method in READS and headers.get("sec-fetch-mode") == "navigate"
        if other_site and not follows_link:
            raise RefusedError(403, "a request must come from the service's own pages, but it comes from another site.")

    def _caller(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        address = (scope.get("client") or ("unknown",))[0]
        token = None if self._tokens is None else self._token(headers, address)
        wait = self._rates.wait(address if token is None else token.id)
        if wait:
            raise RefusedError(
                429, "there are too many requests: try again later.", {"retry-after": f"{wait + 0.5:.0f}"}
            )
        path = scope["path"]
        if self._tokens is not None and token is None and path not in PUBLIC and not path.startswith(PUBLIC_FOLDERS):
            raise _unauthorized("a valid token is needed")
        return Caller(token, self._tokens)

    def _token(self, headers: Mapping[str, str], address: str) -> Token | None:
        """Return the token of a request: from its Authorization header or, if it has none, from its session.

        If there is an Authorization header but its token is not valid, refuse the request. Return None if there is
        neither an Authorization header nor a valid session.
        """
        assert self._tokens is not None
        given = headers.get("authorization")
        if given is not None:
            scheme, _, secret = given.partition(" ")
            token = self._tokens.find(secret.strip()) if scheme.lower() == "bearer" else None
            if token is None:
                if wait := self._rates.wait(address, WRONG_TOKEN):
                    later = {"retry-after": f"{wait + 0.5:.0f}"}
                    raise RefusedError(429, "there are too many requests with a wrong token: try again later.", later)
                raise _unauthorized("the token is unknown, has expired or was revoked")
            return token
        session = cookie_value(headers.get("cookie", ""))
        return None if session is None or self._sessions is None else self._sessions.find(session)


class _Answer:
    """Sends a response, and adds the security headers that every response has."""

    def __init__(self, send: Send) -> None:
        self._send, self._begun = send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            _add_headers(message)
        await self._send(message)

    async def error(self, status: int, kind: str, text: str, headers: Mapping[str, str] | None = None) -> None:
        """Send an error response, unless a response has already begun."""
        if self._begun:
            return
        body = json.dumps({"error": {"type": kind, "text": text}}).encode("ascii")
        sent = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()]
        await self({"type": "http.response.start", "status": status, "headers": pairs})
        await self({"type": "http.response.body", "body": body})


def _parts(url: str) -> SplitResult:
    """Return the parts of a URL; all are empty if it is malformed."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _unauthorized(what: str) -> RefusedError:
    return RefusedError(401, f"{what}: send it as `Authorization: Bearer TOKEN`.", {"www-authenticate": "Bearer"})


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a request by name; refuse a request that repeats a header on which access depends."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in headers and key in ("host", "origin", "authorization", "content-type", "content-length", "cookie"):
            raise RefusedError(400, f"the header '{key}' must be there once, but is there twice.")
        headers[key] = value.decode("latin-1")
    return headers


async def _body(headers: Mapping[str, str], receive: Receive) -> bytes:
    """Return the body of a request that writes.

    Refuse the request if its body is not declared as JSON, is too long or does not arrive in time.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusedError(415, f"the Content-Type must be application/json, but got {kind!r}.")
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length[:20]) > MAX_BODY:
        raise _too_long()
    try:
        return await asyncio.wait_for(_read(receive), BODY_SECONDS)
    except TimeoutError:
        raise RefusedError(408, f"a request must have come within {BODY_SECONDS:g} s.") from None


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the request ended too early.")
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise _too_long()
        if not message.get("more_body"):
            return body


def _too_long() -> RefusedError:
    return RefusedError(413, f"a request must have at most {MAX_BODY} bytes.", {"connection": "close"})


def _replay(body: bytes, later: Receive) -> Receive:
    """Return a `receive` function that first returns the body, which was already read, and then calls `later`."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await later()  # `later` reports when the client disconnects

    return receive


def _add_headers(message: MutableMapping[str, Any]) -> None:
    """Add the security headers to a response, except those that it already has."""
    headers = list(message.get("headers", ()))
    there = {bytes(name).lower() for name, _ in headers}
    more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in there]
    message["headers"] = [*headers, *more]
