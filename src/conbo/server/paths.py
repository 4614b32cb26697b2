"""URL paths that contain the name of a study.

A study's name is one percent-encoded segment of the path: `/v1/studies/spring%2Ftrials` is the study `spring/trials`,
but `/v1/studies/spring/trials` are the trials of the study `spring`. If the whole path were decoded before routing, as
is usual, both would be the same. Here routes match the encoded path, and only the name is decoded afterwards.
"""

from urllib.parse import quote, unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

STUDY = "/v1/studies/{name:study}"  # path of a study in the service
STUDY_PAGE = "/studies/{name:study}"  # path of a study's page in the dashboard


class _StudyName(Convertor[str]):
    """Converts between the name of a study and the path segment that encodes it."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("study", _StudyName())


def encoded_path(scope: Scope) -> str:
    """Return the path of a request, still percent-encoded and without its query."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]) if raw is None else raw.decode("latin-1")
