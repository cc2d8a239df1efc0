"""Responses of the API, and their description in the OpenAPI document.

JSON responses have the exact stored numbers and an ETag. A list is an array, as `-o json` prints it, and its
`Link` header names the next page. The document is generated from the types of the responses.
"""

import hashlib
import json
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from urllib.parse import urlencode

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.batches import BATCH_STATUSES
from cardbox_cli.model.execution.turns import END_STATUSES, INBOX_STATUSES, TURN_STATUSES
from cardbox_cli.model.ids import unique
from cardbox_cli.serve.addresses import next_position, request_path
from cardbox_cli.serve.serve_options import ServeOptions

_JSON = "application/json"

MAX_IDS = 100
"""The maximum number of ids in one request."""
MAX_BYTES = 64 << 20
"""The maximum size of a response in bytes. A single card may exceed it."""

_COMMAND = "request less, or use the command, which has no such limit"


def json_response(
    request: Request, value: Any, *, narrower: str = _COMMAND, of_one: bool = False
) -> Response:
    """Return a response with a value as JSON, or 304 if the client has it already.

    Raises InvalidInput with the advice `narrower` if it is too long. `of_one` allows a card of any length.
    """
    data = exact_json.encode(value)
    if not of_one:
        check_size(len(data), narrower)
    if request.method != "GET":
        return Response(data, media_type=_JSON)
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = request.headers.get("if-none-match", "").split(",")
    if {tag, "*"} & {each.strip().removeprefix("W/") for each in known}:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=_JSON, headers=headers)


def embed_json(text: str) -> Any:
    """Embed JSON from the database in a response without decoding it."""
    return msgspec.Raw(text)


def embed_ids(ids: list[str]) -> Any:
    """Embed ids of the request in its response. A lone surrogate is encoded as an escape."""
    try:
        "".join(ids).encode()
    except UnicodeEncodeError:
        return msgspec.Raw(json.dumps(ids))
    return ids


def check_size(size: int, narrower: str) -> None:
    """Raise InvalidInput if a response of `size` bytes is too long."""
    if size > MAX_BYTES:
        raise InvalidInput(f"the response is longer than {MAX_BYTES >> 20} MiB: {narrower}")


def remaining_bytes(size: int) -> int:
    """Return the number of bytes by which a response of `size` bytes may grow."""
    return MAX_BYTES - size


def total_bytes(texts: Iterable[str]) -> int:
    """Return the total length of these strings in bytes."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


def limited_ids(ids: Iterable[str], name: str) -> list[str]:
    """Return the ids without duplicates. Raises InvalidInput if there are more than `MAX_IDS`."""
    distinct_ids = unique(ids)
    if len(distinct_ids) > MAX_IDS:
        raise InvalidInput(f"{name} exceeds limit {MAX_IDS}")
    return distinct_ids


# The states to filter by, as in the commands. Foreign rows may have other states, which no filter accepts.
if TYPE_CHECKING:
    TurnState: TypeAlias = str
    TurnEnd: TypeAlias = str
    InboxState: TypeAlias = str
    BatchState: TypeAlias = str
else:
    TurnState = Literal[TURN_STATUSES]
    TurnEnd = Literal[END_STATUSES]
    InboxState = Literal[INBOX_STATUSES]
    BatchState = Literal[BATCH_STATUSES]

Most = Annotated[int, Query(alias="limit", ge=1, le=200, description="Maximum number of items.")]

_LESS = "pass a lower `limit`"


def page_response(
    request: Request, items: Iterable[Any], most: int, *, key: str, time: str | None = "created_at"
) -> Response:
    """Return a page of at most `most` items, with a link to the next page if there is one more item.

    The items are sorted by `time`, or by `key` if it is None. Raises InvalidInput if they are too long.
    """
    shown_items: list[Any] = []
    texts: list[msgspec.Raw] = []
    size = 0
    for each in islice(items, most + 1):
        shown_items.append(each)
        if len(shown_items) <= most:
            text = exact_json.encode(each)
            texts.append(msgspec.Raw(text))
            size += len(text)
            check_size(size, _LESS)
    response = json_response(request, texts, narrower=_LESS)
    behind = next_position(shown_items, key, time, size=most)
    if behind is not None:
        known = {name: value for name, value in request.query_params.items() if name != "behind"}
        address = f"{request_path(request.scope)}?{urlencode({**known, 'behind': behind})}"
        response.headers["Link"] = f'<{address}>; rel="next"'
    return response


_REFERENCE = "#/components/schemas/{name}"
_ERROR_STATUSES = {
    400: "A parameter has an invalid value.",
    401: "A token for the project is required.",
    403: "The token belongs to another project.",
    404: "The project has no such object.",
    408: "The request's body did not arrive in time.",
    413: "The request's body is too long.",
    422: "The request is malformed.",
    429: "Too many wrong tokens.",
    503: "The database cannot be reached, or all connections are in use.",
}
_known: list[Any] = []


class ErrorDetail(msgspec.Struct):
    """A stable error code, and a message for people."""

    error_code: str
    error_message: str


class ErrorAnswer(msgspec.Struct):
    """The body of every error response."""

    detail: ErrorDetail


ResponseDocs = dict[int | str, dict[str, Any]]
"""The descriptions of a route's responses in the OpenAPI document, by status."""


def value_docs(kind: Any, *, tagged: bool = True) -> ResponseDocs:
    """Describe responses with a value of this type, an error, or if `tagged`, the status 304."""
    _known.append(kind)
    same: ResponseDocs = {304: {"description": "The client's copy is current."}} if tagged else {}
    return {
        200: {"description": "The requested value.", "content": {_JSON: _schema(kind)}},
        **error_docs(),
        **same,
    }


def event_docs() -> ResponseDocs:
    """Describe responses with server-sent events, or an error."""
    content = {"text/event-stream": {"schema": {"type": "string"}}}
    return {200: {"description": "Events, as they happen.", "content": content}, **error_docs()}


def line_docs(kind: Any) -> ResponseDocs:
    """Describe responses with a value of this type on each line, or an error."""
    _known.append(kind)
    content = {"application/x-ndjson": _schema(kind)}
    return {200: {"description": "One value on each line.", "content": content}, **error_docs()}


def error_docs(*statuses: int) -> ResponseDocs:
    """Describe error responses with these statuses; by default, with all that a project's routes have."""
    content = {_JSON: _schema(ErrorAnswer)}
    return {
        status: {"description": _ERROR_STATUSES[status], "content": content}
        for status in statuses or _ERROR_STATUSES
    }


def openapi_document(app: FastAPI, options: ServeOptions) -> dict[str, Any]:
    if app.openapi_schema is None:
        spec = get_openapi(
            title="cbx read API",
            version=app.version,
            description="Reads cards, boxes and turns of a project. Never writes.",
            routes=app.routes,
        )
        _, parts = msgspec.json.schema_components([ErrorAnswer, *_known], ref_template=_REFERENCE)
        spec.setdefault("components", {}).setdefault("schemas", {}).update(parts)
        if options.asks_for_tokens:
            spec["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            spec["security"] = [{"token": []}]
        app.openapi_schema = spec
    return app.openapi_schema


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return {"schema": schema}
