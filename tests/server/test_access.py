"""Attacks, one after the other: each is refused, and what it would have changed is as it was."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conbo.errors import SettingError
from conbo.server import access
from conbo.server.access import check_host
from conbo.server.rates import RateLimit
from conbo.server.tokens import Right, TokenFile
from conbo.study import Study, open_study
from running_server import SPACE, Running, Start

ASK = "/v1/studies/default/ask"
RENEW = "/v1/studies/default/trials/0/renew"


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "tokens.json")


@pytest.fixture
def guarded(start: Start, tokens: TokenFile) -> Running:
    return start(tokens=tokens)


def n_trials(service: Running) -> int:
    return len(open_study(service.storage).trials)


# without a token


def test_without_a_token_only_on_loopback(tokens: TokenFile) -> None:
    for host in ("127.0.0.1", "127.8.0.1", "::1", "localhost"):
        check_host(host, None)
    check_host("0.0.0.0", tokens)
    for host in ("0.0.0.0", "", "::", "192.168.0.7", "localhost.example.org", "127.0.0.1.example.org"):
        with pytest.raises(SettingError, match="a service without a token file must be on a loopback address"):
            check_host(host, None)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "0.0.0.0", "[::]:80", "[::1"]
)
def test_dns_rebinding(attacked: Running, host: str) -> None:
    for answer in (
        attacked.get("/v1/studies", headers={"host": host}),
        attacked.post(ASK, {}, headers={"host": host}),
        attacked.get("/", headers={"host": host}),
    ):
        assert (answer.status, answer.json["error"]["type"]) == (403, "AccessError")
    assert attacked.get("/v1/studies", headers={"host": f"localhost:{attacked.port}"}).status == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1", "http://[::1"]
)
def test_requests_from_other_sites(attacked: Running, origin: str) -> None:
    assert attacked.post(ASK, {}, headers={"origin": origin}).status == 403
    assert attacked.get("/v1/studies", headers={"origin": origin}).status == 403
    assert attacked.post(RENEW, {"worker": "no/one"}, headers={"origin": attacked.url}).status == 409


def test_requests_that_browsers_mark_as_of_another_site(attacked: Running) -> None:
    marked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert attacked.get("/v1/studies", headers=marked).status == 403
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert attacked.get("/healthz", headers=followed).status == 200
    assert attacked.post(ASK, {}, headers=followed).status == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_forms_cannot_write(attacked: Running, kind: str) -> None:
    assert attacked.post(ASK, {}, headers={"content-type": kind}).status == 415


def test_no_cors(attacked: Running) -> None:
    preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = attacked.request("OPTIONS", ASK, headers=preflight)
    assert answer.status in (403, 405)
    assert not [name for name in answer.headers if name.startswith("access-control")]


# tokens


@pytest.mark.parametrize(
    ("right", "allowed"), [("read", {"read"}), ("run", {"read", "run"}), ("admin", {"read", "run", "admin"})]
)
def test_rights(guarded: Running, tokens: TokenFile, right: Right, allowed: set[str]) -> None:
    secret = tokens.add(right)
    new = {"name": "new", "space": SPACE.to_dict()}
    requests: dict[str, Callable[..., Any]] = {
        "read": lambda **how: guarded.get("/v1/studies/default", **how),
        "run": lambda **how: guarded.post(ASK, {}, **how),
        "admin": lambda **how: guarded.post("/v1/studies", new, **how),
    }
    for needed, request in requests.items():
        assert request().status == 401
        answer = request(token=secret)
        if needed in allowed:
            assert answer.status in (200, 201)
        else:
            assert (answer.status, answer.json["error"]["type"]) == (403, "AccessError")
            assert (
                answer.error
                == f"this needs the right '{needed}', but the request has a token with the right '{right}'."
            )


def test_wrong_tokens(guarded: Running, tokens: TokenFile) -> None:
    secret = tokens.add("admin")
    for wrong in ("x", secret[:-1], secret + "x", secret.swapcase(), "conbo_00000000_" + "A" * 43):
        answer = guarded.get("/v1/studies", token=wrong)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert guarded.get("/v1/studies", headers={"authorization": f"Basic {secret}"}).status == 401
    assert guarded.get("/v1/studies", headers={"authorization": secret}).status == 401
    assert guarded.get("/v1/studies", token=secret).status == 200


def test_a_token_in_a_url_counts_for_nothing(guarded: Running, tokens: TokenFile) -> None:
    secret = tokens.add("admin")
    for name in ("token", "access_token", "authorization"):
        assert guarded.get(f"/v1/studies?{name}={secret}").status == 401


def test_tokens_expire_and_are_revoked_at_once(guarded: Running, tokens: TokenFile) -> None:
    short, kept = tokens.add("read", days=1e-9), tokens.add("read")
    assert guarded.get("/v1/studies", token=short).status == 401
    assert guarded.get("/v1/studies", token=kept).status == 200
    tokens.revoke(kept.split("_")[1])
    assert guarded.get("/v1/studies", token=kept).status == 401


def test_every_path_asks_for_a_token_but_those_that_show_nothing(guarded: Running, tokens: TokenFile) -> None:
    tokens.add("read")
    described = guarded.get("/openapi.json").json["paths"]
    public = {"/healthz", "/v1/session"}
    for path, methods in described.items():
        for method in methods:
            answer = guarded.request(method.upper(), path.replace("{name}", "default").replace("{number}", "0"), {})
            assert (answer.status == 401) == (path not in public) or path == "/v1/session", path
    assert guarded.get("/no/such/page").status == 401


# the dashboard's cookie


def test_a_session_is_a_cookie_that_scripts_cannot_read(guarded: Running, tokens: TokenFile) -> None:
    secret = tokens.add("read")
    assert guarded.post("/v1/session", {"token": "wrong"}).status == 401
    answer = guarded.post("/v1/session", {"token": secret})
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert secret not in cookie
    assert "Secure" not in cookie
    session = {"cookie": cookie.split(";")[0]}
    assert guarded.get("/v1/studies", headers=session).status == 200
    assert guarded.post(ASK, {}, headers=session).status == 403  # it has the rights of its token
    guarded.request("DELETE", "/v1/session", headers=session)
    assert guarded.get("/v1/studies", headers=session).status == 401
    again = {"cookie": guarded.post("/v1/session", {"token": secret}).headers["set-cookie"].split(";")[0]}
    tokens.revoke(secret.split("_")[1])
    assert guarded.get("/v1/studies", headers=again).status == 401


def test_the_cookie_is_secure_behind_a_proxy_with_tls(guarded: Running, tokens: TokenFile) -> None:
    answer = guarded.post("/v1/session", {"token": tokens.add("read")}, headers={"x-forwarded-proto": "https"})
    assert answer.headers["set-cookie"].endswith("; Secure")


def test_a_cookie_does_not_help_another_site(guarded: Running, tokens: TokenFile) -> None:
    session = guarded.post("/v1/session", {"token": tokens.add("run")}).headers["set-cookie"].split(";")[0]
    attack = {"cookie": session, "origin": "https://evil.example"}
    assert guarded.post(ASK, {}, headers=attack).status == 403
    assert guarded.post(ASK, {}, headers={"cookie": session, "content-type": "text/plain"}).status == 415
    assert n_trials(guarded) == 0


# the form of requests


def test_security_headers_are_on_every_answer(attacked: Running) -> None:
    for answer in (
        attacked.get("/healthz"),
        attacked.get("/nowhere"),
        attacked.get("/v1/studies", headers={"host": "x"}),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers


def test_a_long_body_is_refused(attacked: Running) -> None:
    with socket.create_connection(("127.0.0.1", attacked.port), timeout=30) as connection:
        head = f"POST {ASK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {access.MAX_BODY + 1}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_long_body_that_does_not_say_so_is_refused(attacked: Running) -> None:
    with socket.create_connection(("127.0.0.1", attacked.port), timeout=30) as connection:
        head = f"POST {ASK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        with suppress(OSError):  # the service may close before it has got all
            for _ in range(access.MAX_BODY // 65536 + 1):
                connection.sendall(chunk)
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_body_that_never_comes_is_given_up(attacked: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "BODY_SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", attacked.port), timeout=30) as connection:
        head = f"POST {ASK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_headers_that_decide_must_be_there_once(attacked: Running) -> None:
    with socket.create_connection(("127.0.0.1", attacked.port), timeout=30) as connection:
        head = (
            f"GET /v1/studies HTTP/1.1\r\nHost: localhost\r\nOrigin: {attacked.url}\r\nOrigin: https://evil.example\r\n"
        )
        connection.sendall(f"{head}\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_too_many_requests(guarded: Running, tokens: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "WRONG_TOKEN", 150.0)
    answers = [guarded.get("/v1/studies", token="guess") for _ in range(4)]
    assert [answer.status for answer in answers] == [401, 401, 429, 429]
    assert float(answers[-1].headers["retry-after"]) >= 0
    assert guarded.get("/v1/studies", token=tokens.add("read")).status == 200  # others are not shut out


def test_a_caller_gets_its_rate_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    limit = RateLimit(rate=2.0, burst=3.0)
    assert [limit.wait("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limit.wait("b") == 0.0
    now[0] = 0.5
    assert [limit.wait("a") for _ in range(2)] == [0.0, 0.5]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"n": ' + b"9" * 5000 + b"}",
        b'{"worker": "\\ud800"}',
        b'{"state": {"demand": NaN}}',
        b'{"state": {"demand": 1e999}}',
        b'{"state": {"__class__": "os.system"}}',
        b'{"lease": {"$ne": 1}}',
        b'{"n": true}',
    ],
)
def test_malformed_bodies(attacked: Running, body: bytes) -> None:
    answer = attacked.request("POST", ASK, body)
    assert answer.status in (400, 422)
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "%00", "%ED%A0%80", "'%20OR%201=1--", "<script>"])
def test_odd_names(attacked: Running, name: str) -> None:
    answer = attacked.get(f"/v1/studies/{name}")
    assert answer.status in (404, 422), answer.text
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("worker", ["\0/x", "\ud800/x", "x", 5])
def test_a_worker_must_be_one_that_was_named(attacked: Running, worker: object) -> None:
    answer = attacked.post(RENEW, {"worker": worker})
    assert (answer.status, answer.json["error"]["type"]) == (422, "SettingError")
    assert "`worker` must be the one that `ask` has named" in answer.json["error"]["text"]


def test_no_stack_traces(attacked: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr("conbo.server.service.list_studies", fault)
    answer = attacked.get("/v1/studies")
    assert (answer.status, answer.json["error"]["type"]) == (500, "InternalError")
    assert "secret" not in answer.text


def test_text_of_clients_is_stored_as_text(service: Running) -> None:
    service.post(ASK, {"worker": "<script>alert(1)</script>"})
    hostile = "__import__('os').system('true')\0<script>"
    service.post("/v1/studies/default/trials/0/fail", {"error": hostile})
    (trial,) = Study(SPACE, storage=service.storage).trials
    assert trial.error == hostile.replace("\0", "\\0")
