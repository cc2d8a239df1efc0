"""How answers are made: JSON as the stores have it, exact to the digit, an ETag on what is asked again."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import Request
from fastapi.responses import Response

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.model.ids import unique

_JSON = "application/json"

MOST = 100
"""Ids of one request."""
MOST_BYTES = 64 << 20
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
    if size > MOST_BYTES:
        raise InvalidInput(f"the answer is longer than {MOST_BYTES >> 20} MiB: {narrower}")


def room_beside(size: int) -> int:
    """How many bytes may come to so many that an answer has."""
    return MOST_BYTES - size


def size_of(texts: Iterable[str]) -> int:
    """How many bytes these texts are together."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


def _is_known(given: str, tag: str) -> bool:
    known = [each.strip().removeprefix("W/") for each in given.split(",")]
    return tag in known or "*" in known


def at_most(ids: Iterable[str], name: str) -> list[str]:
    """The ids, each once. Raises InvalidInput for too many."""
    wanted = unique(ids)
    if len(wanted) > MOST:
        raise InvalidInput(f"{name} exceeds limit {MOST}")
    return wanted
