"""The OpenAPI document: what each answer looks like, from the types that answers are made of."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from cardbox_cli.serve.options import ServeOptions

_REFERENCE = "#/components/schemas/{name}"
_ERROR_STATUSES = {
    400: "A value that cannot be asked for.",
    401: "A token of the project is required.",
    403: "The token is of another project.",
    404: "There is no such thing in the project.",
    408: "The request's body did not come in time.",
    413: "The request's body is too long.",
    422: "The request is malformed.",
    429: "Too many wrong tokens.",
    503: "The database cannot be reached, or everything is at work.",
}
_known: list[Any] = []


class ErrorDetail(msgspec.Struct):
    """What is wrong: a stable code, and words for people."""

    error_code: str
    error_message: str


class ErrorAnswer(msgspec.Struct):
    """The answer to what cannot be answered."""

    detail: ErrorDetail


Said = dict[int | str, dict[str, Any]]
"""What a route says of its answers, by their status."""


def answers(kind: Any, *, tagged: bool = True) -> Said:
    """What a route says of its answers: a value of this type, or an error. `tagged`: or 304."""
    _known.append(kind)
    same: Said = {304: {"description": "What the asker has is still so."}} if tagged else {}
    return {200: {"description": "The answer.", "content": _json(kind)}, **errors(), **same}


def event_answers() -> Said:
    """What a route says that answers with server-sent events, or an error."""
    content = {"text/event-stream": {"schema": {"type": "string"}}}
    return {200: {"description": "Events, as they happen.", "content": content}, **errors()}


def line_answers(kind: Any) -> Said:
    """What a route says that answers with a value of this type on each line, or an error."""
    _known.append(kind)
    content = {"application/x-ndjson": _schema(kind)}
    return {200: {"description": "A value on each line, as it is read.", "content": content}, **errors()}


def errors(*statuses: int) -> Said:
    """What a route says of its errors: of these, or of all that any route about a project has."""
    wrong = _json(ErrorAnswer)
    return {
        status: {"description": _ERROR_STATUSES[status], "content": wrong}
        for status in statuses or _ERROR_STATUSES
    }


def document(app: FastAPI, options: ServeOptions) -> dict[str, Any]:
    """The document of an app."""
    if app.openapi_schema is None:
        made = get_openapi(
            title="cbx read API",
            version=app.version,
            description="Cards, boxes and turns of a project, to be read.",
            routes=app.routes,
        )
        _, parts = msgspec.json.schema_components([ErrorAnswer, *_known], ref_template=_REFERENCE)
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(parts)
        if options.asks_for_tokens:
            made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"token": []}]
        app.openapi_schema = made
    return app.openapi_schema


def _json(kind: Any) -> dict[str, Any]:
    return {"application/json": _schema(kind)}


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return {"schema": schema}
