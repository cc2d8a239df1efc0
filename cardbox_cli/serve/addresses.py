"""Parts of URLs: names that contain a `/`, and the position at which a page of a list begins.

ASGI servers decode paths, so a `%2F` within a name looks like the `/` between segments. Until a route has
matched, cbx therefore replaces it with a lone surrogate, which neither a URL nor the database can contain.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Query
from starlette.types import ASGIApp, Receive, Scope, Send

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.ids import canonical_box_id
from cardbox_cli.store.connection.project_store import ListPosition
from cardbox_cli.text.error_messages import invalid_message

_SLASH = "\udc2f"
_MAX_LOGGED = 1000
_QUOTED = re.compile(b"%2f", re.IGNORECASE)


class EncodedSlashes:
    """Middleware that replaces each `%2F` in a path with the placeholder."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") or b""
        if _QUOTED.search(raw):
            parts = [unquote(part.decode("latin-1")) for part in _QUOTED.split(raw)]
            scope = {**scope, "path": _SLASH.join(parts)}
        await self._app(scope, receive, send)


def decode_slashes(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the path parameters of a route with each placeholder replaced by a `/`."""
    return {
        name: part.replace(_SLASH, "/") if isinstance(part, str) else part for name, part in parts.items()
    }


def request_path(scope: Scope) -> str:
    """Return the requested path, quoted so that it contains no control characters or line breaks."""
    raw: bytes = scope.get("raw_path") or b""
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x22 else f"%{byte:02X}" for byte in raw)


def logged_path(scope: Scope) -> str:
    """Return the requested path for a log, shortened to `_MAX_LOGGED` characters."""
    path = request_path(scope)
    return path if len(path) <= _MAX_LOGGED else f"{path[:_MAX_LOGGED]}…"


def request_address(scope: Scope) -> str:
    query: bytes = scope.get("query_string") or b""
    return f"{request_path(scope)}?{query.decode('latin-1')}" if query else request_path(scope)


PAGE_SIZE = 50
"""The number of items on a page of a list."""

# Separates the instant from the id; an instant never contains it.
_SEPARATOR = "~"

Behind = Annotated[str | None, Query(max_length=400)]
"""The instant and the id after which a page begins, as `next_position` formats them."""

BehindId = Annotated[str | None, Query(max_length=1000)]
"""The id after which a page begins, in a list sorted by ids."""

From = Annotated[int, Query(alias="from", ge=0, le=2**31 - 1)]
"""The position at which a window begins, counted from 0."""


def parse_position(behind: str | None, *, of_boxes: bool = False) -> ListPosition | None:
    """Parse the position at which a page begins. Raises InvalidInput."""
    if behind is None:
        return None
    at, _, item_id = behind.partition(_SEPARATOR)
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or (of_boxes and canonical_box_id(item_id) is None):
        raise InvalidInput(invalid_message("list position", behind[:40]), hint="go back to the first page")
    return ListPosition(moment, item_id)


def next_position(
    items: Sequence[Any], key: str, time: str | None = "created_at", size: int = PAGE_SIZE
) -> str | None:
    """Return the position at which the next page begins; None on the last page.

    `items` holds one item more than a page shows. `time` is None for a list that is sorted by ids.
    """
    if len(items) <= size:
        return None
    last_id = str(getattr(items[size - 1], key))
    if time is None:
        return last_id
    moment = getattr(items[size - 1], time)
    return None if moment is None else f"{moment.isoformat()}{_SEPARATOR}{last_id}"
