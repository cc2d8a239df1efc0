"""What a request may be: so long, and sent in such a time. What every answer says of itself, also where the
server fails.
"""

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cardbox_cli.serve.http.errors import BrokenOff, answer, headers_for, logged, told

MOST = 1 << 20
"""Bytes of a request's body."""
PATIENCE = 30.0
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
            with anyio.fail_after(PATIENCE):
                body = await _body(receive)
        except TimeoutError:
            refusal = answer(408, "bad_request", "the request's body did not come in time")
            await refusal(scope, receive, marked)
            return
        if body is None:
            return
        if len(body) > MOST:
            refusal = answer(413, "bad_request", f"the request's body is longer than {MOST} bytes")
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
        if len(body) > MOST or not message.get("more_body"):
            return bytes(body)
