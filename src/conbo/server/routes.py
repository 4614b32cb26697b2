"""The routes of the HTTP interface, version 1. They call `Service`, and nearly all respond with JSON.

The stream of events and the pages of the dashboard are in `pages.py`.
"""

from collections.abc import Callable
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request, Response

from conbo.server import model_work
from conbo.server.access import Caller, RefusedError
from conbo.server.answers import Json
from conbo.server.bodies import Ask, Fail, NewStudy, NewTrial, PolicyQuestion, Release, Renew, SignIn, Tell
from conbo.server.paths import STUDY
from conbo.server.service import Service
from conbo.server.sessions import Sessions, cookie, cookie_value
from conbo.server.tokens import Right, TokenFile


def needs(right: Right) -> Callable[[Request], None]:
    """Return a dependency for FastAPI that refuses a request whose token does not have this right."""

    def check(request: Request) -> None:
        caller: Caller = request.state.caller
        if not caller.allows(right):
            has = "no token" if caller.token is None else f"a token with the right '{caller.token.right}'"
            raise RefusedError(403, f"this needs the right '{right}', but the request has {has}.")

    return check


READ, RUN, ADMIN = ([Depends(needs(right))] for right in ("read", "run", "admin"))
Statuses = Literal["completed", "running", "failed"]


def study_routes(service: Service) -> APIRouter:
    """Return the routes by which clients create, read and work on studies."""
    routes = APIRouter(default_response_class=Json)

    @routes.get("/v1/studies", dependencies=READ, summary="All studies with the counts of their trials")
    async def list_studies() -> Any:
        return Json({"studies": await service.studies()})

    @routes.post("/v1/studies", dependencies=ADMIN, status_code=201, summary="Create a study")
    async def create_study(body: NewStudy) -> Any:
        given = {name: value for name, value in body.record().items() if value is not None}
        return Json(await service.create(given), 201)

    @routes.get(f"{STUDY}/trials", dependencies=READ, summary="Trials, a page at a time")
    async def list_trials(name: str, offset: int = 0, limit: int = 100, status: Statuses | None = None) -> Any:
        return Json(await service.trials(name, offset, limit, status))

    @routes.post(f"{STUDY}/trials", dependencies=RUN, status_code=201, summary="Enqueue a point, or add a result")
    async def add_trial(name: str, body: NewTrial) -> Any:
        return Json(await service.add_trial(name, body.record()), 201)

    @routes.get(f"{STUDY}/trials/{{number}}", dependencies=READ, summary="One trial")
    async def show_trial(name: str, number: int) -> Any:
        return Json(await service.trial(name, number))

    @routes.post(f"{STUDY}/ask", dependencies=RUN, summary="Trials to evaluate, with a lease")
    async def ask(name: str, body: Ask, request: Request) -> Any:
        return Json(await service.ask(name, body.record(), request.is_disconnected))

    @routes.post(f"{STUDY}/trials/{{number}}/tell", dependencies=RUN, summary="The reward of a trial")
    async def tell(name: str, number: int, body: Tell) -> Any:
        return Json(await service.tell(name, number, body.record()))

    @routes.post(f"{STUDY}/trials/{{number}}/fail", dependencies=RUN, summary="A trial without a reward")
    async def fail(name: str, number: int, body: Fail) -> Any:
        return Json(await service.fail(name, number, body.record()))

    @routes.post(f"{STUDY}/trials/{{number}}/renew", dependencies=RUN, summary="Keep a trial for longer")
    async def renew(name: str, number: int, body: Renew) -> Any:
        return Json(await service.renew(name, number, body.record()))

    @routes.post(f"{STUDY}/trials/{{number}}/release", dependencies=RUN, summary="Give a trial back")
    async def release(name: str, number: int, body: Release) -> Any:
        return Json(await service.release(name, number, body.record()))

    @routes.post(f"{STUDY}/policy", dependencies=READ, summary="The best actions for states")
    async def policy(name: str, body: PolicyQuestion) -> Any:
        return Json(await service.policy(name, body.states, body.extrapolate, body.fresh))

    @routes.get(f"{STUDY}/plots/{{kind}}", dependencies=READ, summary="A picture, as plotly's JSON")
    async def plot(name: str, kind: str) -> Any:
        return Json(await service.draw(name, model_work.plot, kind))

    @routes.get(f"{STUDY}/report", dependencies=READ, summary="The report, as one HTML page to keep")
    async def report(name: str) -> Response:
        page = await service.draw(name, model_work.report)
        # the page has scripts of its own, so it must never open under the address of the service
        headers = {"content-disposition": 'attachment; filename="report.html"', "content-security-policy": "sandbox"}
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)

    @routes.get(STUDY, dependencies=READ, summary="Settings and progress of a study")
    async def status(name: str, model: bool = False) -> Any:
        return Json(await service.status(name, model))

    return routes


def session_routes(tokens: TokenFile | None, sessions: Sessions | None) -> APIRouter:
    """Return the routes for signing in to and out of the dashboard, and a health check of the service."""
    routes = APIRouter(default_response_class=Json)

    @routes.get("/healthz", summary="Whether the service runs")
    async def health() -> Any:
        return Json({"status": "ok"})

    @routes.post("/v1/session", summary="Exchange a token for a cookie")
    async def sign_in(body: SignIn, request: Request) -> Any:
        if tokens is None or sessions is None:
            return Json({"right": "admin"})
        token = tokens.find(body.token)
        if token is None:
            raise RefusedError(401, "the token is unknown, has expired or was revoked.")
        secure = request.url.scheme == "https"
        return Json({"right": token.right}, headers={"set-cookie": cookie(sessions.open(token), secure)})

    @routes.delete("/v1/session", summary="End a session")
    async def sign_out(request: Request) -> Any:
        value = cookie_value(request.headers.get("cookie", ""))
        if sessions is not None and value is not None:
            sessions.close(value)
        return Json({}, headers={"set-cookie": cookie("", request.url.scheme == "https")})

    return routes
