"""Middleware around the app: limits of a request, headers of every response, and the access log."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cardbox_cli.serve.addresses import logged_path
from cardbox_cli.serve.http.errors import ResponseBroken, error_parts, error_response, headers_for, log_error

MAX_BODY = 1 << 20
"""The maximum number of bytes of a request's body."""
BODY_SECONDS = 30.0
"""The number of seconds within which a request's body must arrive."""

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    # With a stricter policy, browsers send no origin with the server's own forms.
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class RequestLimits:
    """Rejects bodies that are too long or too slow, and adds headers to responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        try:
            with anyio.fail_after(BODY_SECONDS):
                body = await _read_body(receive)
        except TimeoutError:
            refusal = error_response(408, "bad_request", "the request's body did not arrive in time")
            await refusal(scope, receive, send_with_headers)
            return
        if body is None:
            return
        if len(body) > MAX_BODY:
            message = f"the request's body is longer than {MAX_BODY} bytes"
            await error_response(413, "bad_request", message)(scope, receive, send_with_headers)
            return
        is_read = False

        async def receive_again() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            await self._app(scope, receive_again, send_with_headers)
        except ResponseBroken:
            # The server closes the connection of an incomplete response.
            return
        except Exception as exc:
            log_error(scope, exc)
            if not has_begun:
                await error_response(*error_parts(exc), headers_for(exc))(scope, receive, send_with_headers)


async def _read_body(receive: Receive) -> bytes | None:
    """Read a request's body, at most one chunk beyond `MAX_BODY`; return None if the client disconnects."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_BODY or not message.get("more_body"):
            return bytes(body)


# --- the access log: the Common Log Format, and the seconds that a request took. It contains no tokens and no
# queries, because those hold search terms. Paths are quoted and client addresses checked: they cannot forge a
# line or a field.

# Behind a proxy, the address comes from a header. An IPv6 address may name its interface after a %.
_ADDRESS = re.compile(r"[\w.:%-]{1,64}", re.ASCII)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})


class AccessLog:
    """Writes a line when a response has been sent or the client has disconnected."""

    def __init__(self, app: ASGIApp, write: Callable[[str], None]) -> None:
        self._app = app
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, size = monotonic(), 0, 0

        async def send_and_count(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_and_count)
        finally:
            self._write(_line(scope, status or "-", size, monotonic() - began))


def _line(scope: Scope, status: int | str, size: int, took: float) -> str:
    address = (scope.get("client") or ("-",))[0]
    client = address if _ADDRESS.fullmatch(address) else "-"
    at = datetime.now(UTC).strftime("%d/%b/%Y:%H:%M:%S %z")
    method = scope["method"] if scope["method"] in _METHODS else "-"
    request = f"{method} {logged_path(scope)} HTTP/{scope.get('http_version', '1.1')}"
    return f'{client} - - [{at}] "{request}" {status} {size} {took:.3f}'
