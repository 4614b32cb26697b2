"""JSON responses of the service; an error becomes a response with a suitable HTTP status and a message.

The message is the library's own if the request is at fault, and a general one if the database or the service is.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from conbo.errors import ConboError, PointError, RecordError, RewardError, SettingError, SpaceError, StorageError
from conbo.server.access import INTERNAL, RefusedError
from conbo.server.records import UnknownError

_log = logging.getLogger("conbo.server")

_NO_PATH = "there is no such path: `/openapi.json` lists all, and a slash in a study's name is written as %2F."
_UNAVAILABLE = "the database cannot be used now: try again later."
_WRONG = (PointError, RewardError, SettingError, SpaceError, RecordError)


class Json(Response):
    """A JSON response in ASCII, because a client may have sent strings that UTF-8 cannot encode (lone surrogates)."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the content as JSON, encoded in ASCII."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def error_answer(status: int, kind: str, text: str, headers: dict[str, str] | None = None) -> Json:
    """Return a JSON response that describes an error by the name of its type (`kind`) and its message (`text`)."""
    return Json({"error": {"type": kind, "text": text}}, status, headers)


def status_of(error: ConboError) -> int:
    """Return the HTTP status for an error: 503 if the client may simply try again later, else 4xx."""
    if isinstance(error, UnknownError):
        return 404
    if isinstance(error, StorageError):
        return 503
    return 422 if isinstance(error, _WRONG) else 409


def add_error_answers(app: FastAPI, without_place: Callable[[str], str]) -> None:
    """Register handlers that answer every error with a JSON response; internal details go only to the log.

    Parameters
    ----------
    app
        The application.
    without_place
        Function that removes the name of the database from an error message.
    """

    @app.exception_handler(ConboError)
    async def expected(request: Request, error: ConboError) -> Response:
        status = status_of(error)
        if status == 503:
            _log.error("%s", error)
            return error_answer(503, "StorageError", _UNAVAILABLE, {"retry-after": "5"})
        kind = error.kind if isinstance(error, UnknownError) else type(error).__name__
        return error_answer(status, kind, without_place(str(error)))

    @app.exception_handler(RefusedError)
    async def refused(request: Request, refusal: RefusedError) -> Response:
        return error_answer(refusal.status, "AccessError", refusal.text, refusal.headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        return error_answer(422, "SettingError", _in_words(error))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        text = _NO_PATH if error.status_code == 404 else f"{error.detail}."
        return error_answer(error.status_code, "RequestError", text, dict(error.headers or {}))

    @app.exception_handler(UnicodeEncodeError)
    async def not_text(request: Request, error: UnicodeEncodeError) -> Response:
        return error_answer(422, "SettingError", "strings must be valid Unicode, but one has lone surrogates.")

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return error_answer(500, "InternalError", INTERNAL)  # `Guard` logs the error


def _in_words(error: RequestValidationError) -> str:
    """Return a sentence that names the first invalid field of a request, and says why the field is invalid."""
    first = error.errors()[0]
    _, *path = first["loc"]
    if first["type"] == "json_invalid" or not path:
        return "the body of a request must be a JSON object."
    name = ".".join(map(str, path))
    if first["type"] == "missing":
        return f"`{name}` must be there, but is missing."
    if first["type"] == "extra_forbidden":
        return f"`{name}` must not be there: no such field is known."
    return f"`{name}` is wrong: {first['msg']}."
