"""What tests of the service share: requests of any kind to a server that is running."""

import asyncio
import http.client
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from conbo.spaces import Real, Space

SPACE = Space(states={"demand": Real(10, 100)}, actions={"stock": Real(0, 150)})
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> str:
        return str(self.json["error"]["text"])


@dataclass(frozen=True)
class Running:
    """A server that is running."""

    port: int
    storage: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None, token: str = ""
    ) -> Answer:
        """Send any request, also one that no client of ours would send; bytes are sent as they are."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**(JSON if method != "GET" else {}), **(headers or {})}
        if token:
            sent["authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, content, {name: value for name, value in sent.items() if value})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read().decode())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Answer:
        return self.request("GET", path, **options)

    def post(self, path: str, body: object, **options: Any) -> Answer:
        return self.request("POST", path, body, **options)


Start = Callable[..., Running]


def threads(*, background: bool = False) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def run_async(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread, because Playwright leaves an event loop in the main thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def reward(state: dict[str, Any], action: dict[str, Any]) -> float:
    return -abs(float(state["demand"]) - float(action["stock"]))
