"""A line for each request, in the Common Log Format and with the seconds that it took.

No query, which holds what people search for, and no token. Paths are quoted as they were asked for, and of an
asker stands what may be an address, so that nothing in either ends a line or passes for another part of it.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cardbox_cli.serve.http.addresses import logged_path

# Behind a proxy it is the word of a header. Of IPv6 an address may name its interface, after a %.
_ADDRESS = re.compile(r"[\w.:%-]{1,64}", re.ASCII)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})


class AccessLog:
    """Writes a line when an answer has been sent, or whoever asked has gone away."""

    def __init__(self, app: ASGIApp, write: Callable[[str], None]) -> None:
        self._app = app
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, size = monotonic(), 0, 0

        async def noted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            self._write(_line(scope, status or "-", size, monotonic() - began))


def _line(scope: Scope, status: int | str, size: int, took: float) -> str:
    client = (scope.get("client") or ("-",))[0]
    client = client if _ADDRESS.fullmatch(client) else "-"
    at = datetime.now(UTC).strftime("%d/%b/%Y:%H:%M:%S %z")
    method = scope["method"] if scope["method"] in _METHODS else "-"
    asked = f"{method} {logged_path(scope)} HTTP/{scope.get('http_version', '1.1')}"
    return f'{client} - - [{at}] "{asked}" {status} {size} {took:.3f}'
