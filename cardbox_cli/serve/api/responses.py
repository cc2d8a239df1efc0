"""Answers of the API: how they are made, and what the OpenAPI document says of them.

JSON is as the stores have it, exact to the digit, with an ETag. A list is an array as `-o json` prints it,
and the header `Link` has its next page. The document is made of the types that answers are made of.
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
from cardbox_cli.model.execution.turns import INBOX_STATUSES, TURN_STATUSES
from cardbox_cli.model.ids import unique
from cardbox_cli.serve.addresses import following, path_of
from cardbox_cli.serve.options import ServeOptions

_JSON = "application/json"

MAX_IDS = 100
"""Ids of one request."""
MAX_BYTES = 64 << 20
"""Bytes of an answer, but for that of a single card."""

_COMMAND = "ask for less, or use the command, which has no such bound"


def encoded(request: Request, value: Any, *, narrower: str = _COMMAND, of_one: bool = False) -> Response:
    """A value as JSON, or 304 where the asker has it already.

    Raises InvalidInput where it is too long, and says by `narrower` what to ask instead; `of_one` card it may
    have any length.
    """
    data = exact_json.encode(value)
    if not of_one:
        check_size(len(data), narrower)
    if request.method != "GET":
        return Response(data, media_type=_JSON)
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if _is_known(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=_JSON, headers=headers)


def stored(text: str) -> Any:
    """JSON that the database has written, as a part of an answer: embedded as it is, without decoding it."""
    return msgspec.Raw(text)


def given(ids: list[str]) -> Any:
    """Ids of the request, as a part of its answer. Half a surrogate pair in one is encoded as an escape."""
    try:
        "".join(ids).encode()
    except UnicodeEncodeError:
        return msgspec.Raw(json.dumps(ids))
    return ids


def check_size(size: int, narrower: str) -> None:
    """Raise InvalidInput where an answer of so many bytes is too long."""
    if size > MAX_BYTES:
        raise InvalidInput(f"the answer is longer than {MAX_BYTES >> 20} MiB: {narrower}")


def room_beside(size: int) -> int:
    """How many bytes may come to so many that an answer has."""
    return MAX_BYTES - size


def size_of(texts: Iterable[str]) -> int:
    """How many bytes these texts are together."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


def _is_known(given: str, tag: str) -> bool:
    known = [each.strip().removeprefix("W/") for each in given.split(",")]
    return tag in known or "*" in known


def at_most(ids: Iterable[str], name: str) -> list[str]:
    """The ids, each once. Raises InvalidInput for too many."""
    wanted = unique(ids)
    if len(wanted) > MAX_IDS:
        raise InvalidInput(f"{name} exceeds limit {MAX_IDS}")
    return wanted


# The states that can be asked for, as commands take them. Others, which foreign rows may have, cannot.
if TYPE_CHECKING:
    TurnState: TypeAlias = str
    InboxState: TypeAlias = str
    BatchState: TypeAlias = str
else:
    TurnState = Literal[TURN_STATUSES]
    InboxState = Literal[INBOX_STATUSES]
    BatchState = Literal[BATCH_STATUSES]

Most = Annotated[int, Query(alias="limit", ge=1, le=200, description="At most so many.")]

_LESS = "ask for less by a lower `limit`"


def paged(
    request: Request,
    items: Iterable[Any],
    most: int,
    *,
    key: str,
    time: str | None = "created_at",
) -> Response:
    """A page of these, of which one more is read, by their `time`, or without one by their `key`.

    Raises InvalidInput where they are too long for one answer.
    """
    found: list[Any] = []
    texts: list[msgspec.Raw] = []
    size = 0
    for each in islice(items, most + 1):
        found.append(each)
        if len(found) <= most:
            text = exact_json.encode(each)
            texts.append(msgspec.Raw(text))
            size += len(text)
            check_size(size, _LESS)
    response = encoded(request, texts, narrower=_LESS)
    behind = following(found, key, time, size=most)
    if behind is not None:
        known = {name: value for name, value in request.query_params.items() if name != "behind"}
        address = f"{path_of(request.scope)}?{urlencode({**known, 'behind': behind})}"
        response.headers["Link"] = f'<{address}>; rel="next"'
    return response


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
