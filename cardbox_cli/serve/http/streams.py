"""Answers that are sent in chunks for as long as the client reads them: N at a time."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cardbox_cli.serve.http.errors import Refused


class Streams:
    """The places for streams of one app. Belongs to its event loop."""

    def __init__(self, size: int) -> None:
        self._free = size

    def take(self) -> None:
        """Take a place. Raises Refused if none is free."""
        if self._free < 1:
            raise Refused(503, "too many streams are being sent already", headers={"Retry-After": "30"})
        self._free -= 1

    def release(self) -> None:
        """Give a place back."""
        self._free += 1


class StreamAnswer(StreamingResponse):
    """An answer in chunks, which has its place from before its first byte to its end."""

    def __init__(self, request: Request, chunks: AsyncIterator[str], **options: Any) -> None:
        """Raises Refused if no place is free."""
        super().__init__(chunks, **options)
        self._streams: Streams = request.app.state.streams
        self._streams.take()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release()
