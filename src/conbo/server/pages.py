"""The dashboard's pages: a list of studies, and for each study a report that updates itself.

Pages load scripts and styles from `/assets` alone, and the content security policy allows no other scripts. So text
that a client has sent could not run as a script in a page, even if it were not escaped.
"""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from jinja2 import Environment, FunctionLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from conbo.server.access import Caller
from conbo.server.live import Live
from conbo.server.paths import STUDY, STUDY_PAGE
from conbo.server.records import UnknownError
from conbo.server.routes import READ
from conbo.server.service import Service

# Content security policy. Inline styles are allowed, because charts set styles in scripts, and panels set their heights
# in attributes.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HTML = "text/html; charset=utf-8"
TYPES = {".css": "text/css", ".js": "text/javascript"}
ASSET_CACHING = "private, max-age=600"  # cache header of assets, which have no secrets


def page_routes(service: Service, live: Live) -> APIRouter:
    """Return the routes of the pages, and of the scripts and styles that they load."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    async def studies(request: Request) -> Response:
        return _studies(request)

    @routes.get(STUDY_PAGE)
    async def study(name: str, request: Request) -> Response:
        if not _may_read(request):
            return _studies(request, 401)
        try:
            drawing = await live.drawing(name)
        except UnknownError:
            return _page("unknown.html.j2", 404, name=name)
        if not drawing.page:
            return _page("waiting.html.j2", name=name)
        page = drawing.page.replace('data-report=""', f'data-report="{drawing.number}"', 1)
        return Response(page, media_type=HTML, headers={"content-security-policy": POLICY})

    @routes.get("/assets/{name}")
    async def asset(name: str) -> Response:
        text = await service.read(_asset, name)
        if text is None:
            return Response(status_code=404)
        kind = f"{TYPES[Path(name).suffix]}; charset=utf-8"
        return Response(text, media_type=kind, headers={"cache-control": ASSET_CACHING})

    return routes


def event_routes(live: Live) -> APIRouter:
    """Return the route of a study's stream of events."""
    routes = APIRouter()

    @routes.get(f"{STUDY}/events", dependencies=READ, summary="Progress as server-sent events")
    async def events(name: str, request: Request) -> Response:
        stream = await live.events(name, request.state.caller)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    return routes


def _may_read(request: Request) -> bool:
    caller: Caller = request.state.caller
    return caller.allows("read")


def _studies(request: Request, status: int = 200) -> Response:
    asks_for_tokens = request.state.caller.tokens is not None
    return _page("studies.html.j2", status, signed_in=_may_read(request), tokens=asks_for_tokens)


def _page(template: str, status: int = 200, **values: Any) -> Response:
    text = _environment().get_template(template).render(**values)
    return Response(text, status, media_type=HTML, headers={"content-security-policy": POLICY})


@cache
def _environment() -> Environment:
    loader = FunctionLoader(lambda name: _files("server", "static")[name].read_text(encoding="utf-8"))
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


@cache
def _files(*folders: str) -> dict[str, Traversable]:
    """Return the files of a folder by name; `folders` are the parts of its path in the package conbo."""
    return {file.name: file for file in files("conbo").joinpath(*folders).iterdir()}


@cache
def _asset(name: str) -> str | None:
    """Return the text of the script or style sheet with this name, or None if there is none."""
    if name == "plotly.js":
        return str(get_plotlyjs())
    known = {**_files("reports"), **_files("server", "static")}
    found = known.get(name) if Path(name).suffix in TYPES else None
    return None if found is None else found.read_text(encoding="utf-8")
