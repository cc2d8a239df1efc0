"""Addresses as they were asked for: a `/` that is a part of a name, and stands in an address as `%2F`.

Servers hand on the path of an address decoded, where such a `/` cannot be told from those between its parts.
Until a route has taken the parts, another sign stands for it: half a surrogate pair, which no address decodes
to and no text in a database holds.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

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
