"""Middleware around the app: bounds of a request, headers of every answer, and the access log."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cardbox_cli.serve.addresses import logged_path
from cardbox_cli.serve.http.errors import BrokenOff, answer, headers_for, logged, told

MAX_BODY = 1 << 20
"""Bytes of a request's body."""
BODY_SECONDS = 30.0
"""Seconds in which it has to come."""

_SAID = (
    (b"x-content-type-options", b"nosniff"),
    # With less, browsers would not say of our own forms where they come from.
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Bounds:
    """Refuses bodies that are too long, and marks answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        has_begun = False

        async def marked(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                message["headers"] = [*message.get("headers", []), *_SAID]
            await send(message)

        try:
            with anyio.fail_after(BODY_SECONDS):
                body = await _body(receive)
        except TimeoutError:
            refusal = answer(408, "bad_request", "the request's body did not come in time")
            await refusal(scope, receive, marked)
            return
        if body is None:
            return
        if len(body) > MAX_BODY:
            refusal = answer(413, "bad_request", f"the request's body is longer than {MAX_BODY} bytes")
            await refusal(scope, receive, marked)
            return
        is_read = False

        async def held() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            await self._app(scope, held, marked)
        except BrokenOff:
            # The server closes the connection of an answer without its end.
            return
        except Exception as exc:
            logged(scope, exc)
            if not has_begun:
                await answer(*told(exc), headers_for(exc))(scope, receive, marked)


async def _body(receive: Receive) -> bytes | None:
    """A request's body, or as much of it as is too long; None of an asker who has gone away."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_BODY or not message.get("more_body"):
            return bytes(body)


# --- the access log: the Common Log Format, and the seconds that a request took. It has no query, which
# holds what people search for, and no token. A path is quoted, and a client is what may be an address, so
# that nothing in either ends a line or passes for another part of it.

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
