"""The service as one application, and the server that runs it."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from conbo.errors import SettingError
from conbo.notices import LOG
from conbo.server.access import Guard, check_host
from conbo.server.answers import add_error_answers
from conbo.server.live import Live
from conbo.server.model_processes import NewExecutor, OneProcess
from conbo.server.pages import event_routes, page_routes
from conbo.server.routes import session_routes, study_routes
from conbo.server.service import Service
from conbo.server.sessions import Sessions
from conbo.server.tokens import TokenFile

KEEP_ALIVE = 30  # seconds for which an idle connection is kept
SHUTDOWN = 3  # seconds that open requests have to finish when the service ends
MAX_CONNECTIONS = 1000
MAX_HEADERS = 16_384  # largest size of a request's headers, in bytes

DESCRIPTION = """Studies of conditional Bayesian optimization: ask for trials, tell their rewards, use the policy.

Errors are JSON: `{"error": {"type": "RewardError", "text": "..."}}`, with the library's type and text.
"""


def create_app(storage: str, tokens: TokenFile | None = None, new: NewExecutor = OneProcess) -> Guard:
    """Make the application, which any ASGI server can run.

    Parameters
    ----------
    storage
        An SQLite file or the URL of a database.
    tokens
        The tokens that clients need; None lets everybody on this machine do everything.
    new
        A function that makes executors. All work with models runs in them: suggestions, fits, predictions and figures.
        By default, each executor is a separate process.

    Returns
    -------
    Guard
        The application, wrapped in the access checks.

    Raises
    ------
    StorageError
        If the database cannot be used.
    """
    service = Service(storage, new)
    sessions = None if tokens is None else Sessions(tokens)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="conbo",
        version=version("conbo"),
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # off, because FastAPI's pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
    )
    add_error_answers(app, service.without_place)
    app.include_router(session_routes(tokens, sessions))
    live = Live(service)
    app.include_router(event_routes(live))
    app.include_router(study_routes(service))
    app.include_router(page_routes(service, live))
    return Guard(app, tokens, sessions, live.end)


class Server(uvicorn.Server):
    """A server that logs its address as soon as it listens, and ends the event streams when it shuts down."""

    def __init__(self, config: uvicorn.Config, end: Callable[[], None]) -> None:
        super().__init__(config)
        self._end = end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and log the address; raise SettingError if the host or the port cannot be used."""
        try:
            await super().startup(sockets)
        except SystemExit as ended:  # uvicorn would end the process
            host, port = self.config.host, self.config.port
            rule = "`host` and `port` must be where the service can listen"
            raise SettingError(f"{rule}, but got host={host!r}, port={port}: {ended.__context__}") from ended
        if self.started:
            host, port, *_ = self.servers[0].sockets[0].getsockname()
            LOG.info("Serving http://%s:%d/ now; Ctrl-C ends it.", f"[{host}]" if ":" in host else host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the event streams, answer the requests that have arrived, and shut down."""
        self._end()
        await super().shutdown(sockets)


def server(app: Guard, host: str, port: int, behind_proxy: bool) -> Server:
    """Make a server for the application, without starting it.

    Parameters
    ----------
    app
        The application that `create_app` returned.
    host, port
        Where to listen; port 0 stands for any free port.
    behind_proxy
        Whether to trust the forwarding headers of a proxy on this machine.

    Returns
    -------
    Server
        The server; its method `run` blocks until the server shuts down.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=behind_proxy,  # uvicorn trusts these headers only from this machine
        http="h11",
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=SHUTDOWN,
        h11_max_incomplete_event_size=MAX_HEADERS,
    )
    return Server(config, app.end)


def serve(storage: str, host: str, port: int, token_file: Path | None) -> None:
    """Run the service until it is interrupted.

    Parameters
    ----------
    storage
        An SQLite file or the URL of a database.
    host, port
        Where to listen; port 0 stands for any free port.
    token_file
        The file that `conbo token` writes; without one, only this machine can reach the service.

    Raises
    ------
    SettingError
        If there is no token file and the host is not a loopback address, or the service cannot listen there.
    StorageError
        If the database cannot be used.
    """
    tokens = None if token_file is None else TokenFile(token_file)
    check_host(host, tokens)
    if tokens is None:
        LOG.info(
            "Without --token-file, only this machine can reach the service, and everybody on it may do everything."
        )
    server(create_app(storage, tokens), host, port, behind_proxy=tokens is not None).run()
