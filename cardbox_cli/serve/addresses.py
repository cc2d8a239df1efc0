"""What addresses say: names with a `/` in their paths, and in their queries where a page of a list begins.

Servers hand on the path of an address decoded, where a `%2F` within a name cannot be told from the `/`
between parts. Until a route has taken the parts, another sign stands for it: half a surrogate pair, which no
address decodes to and no text in a database holds.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Query
from starlette.types import ASGIApp, Receive, Scope, Send

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.store.connection.project_store import Mark

_STANDS_IN = "\udc2f"
# Characters of a path in a log.
_MAX_LOGGED = 1000
_QUOTED = re.compile(b"%2f", re.IGNORECASE)


class Slashes:
    """Puts the other sign into paths."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on."""
        raw = scope.get("raw_path") or b""
        if _QUOTED.search(raw):
            pieces = [unquote(piece.decode("latin-1")) for piece in _QUOTED.split(raw)]
            scope = {**scope, "path": _STANDS_IN.join(pieces)}
        await self._app(scope, receive, send)


def named(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that a route has taken, with the names that they mean."""
    return {
        name: part.replace(_STANDS_IN, "/") if isinstance(part, str) else part for name, part in parts.items()
    }


def path_of(scope: Scope) -> str:
    """The path of an address as it was asked for, quoted: nothing in it acts on a terminal or ends a line."""
    raw: bytes = scope.get("raw_path") or b""
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x22 else f"%{byte:02X}" for byte in raw)


def logged_path(scope: Scope) -> str:
    """The same for a line of a log, in which a path of any length has a bound."""
    path = path_of(scope)
    return path if len(path) <= _MAX_LOGGED else f"{path[:_MAX_LOGGED]}…"


def address_of(scope: Scope) -> str:
    """The address as it was asked for, without its host."""
    query: bytes = scope.get("query_string") or b""
    return f"{path_of(scope)}?{query.decode('latin-1')}" if query else path_of(scope)


LINES = 50
"""Lines of a list."""

# What stands between the instant and the id; no instant has it.
_BETWEEN = "~"

Behind = Annotated[str | None, Query(max_length=400)]
"""Where a page begins: an instant and an id, as `following` writes them."""

BehindId = Annotated[str | None, Query(max_length=1000)]
"""Where a page of a list begins that is sorted by ids: the last one before."""

# The last place that a box can have.
_LAST_PLACE = 2**31 - 1

From = Annotated[int, Query(alias="from", ge=0, le=_LAST_PLACE)]
"""Where a window begins, counted from 0."""


def mark_of(behind: str | None, *, of_boxes: bool = False) -> Mark | None:
    """The place that an address names. Raises InvalidInput."""
    if behind is None:
        return None
    at, _, named = behind.partition(_BETWEEN)
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or (of_boxes and as_box_id(named) is None):
        raise InvalidInput(f"{behind[:40]!r} is no place in a list", hint="go back to its beginning")
    return Mark(moment, named)


def following(
    found: Sequence[Any], key: str, time: str | None = "created_at", size: int = LINES
) -> str | None:
    """Where the page behind these begins, of which one more was read than it shows; None at the end.

    A list that is sorted by ids has no `time`.
    """
    if len(found) <= size:
        return None
    last = found[size - 1]
    if time is None:
        return str(getattr(last, key))
    moment = getattr(last, time)
    return None if moment is None else f"{moment.isoformat()}{_BETWEEN}{getattr(last, key)}"
