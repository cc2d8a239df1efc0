"""Answers that are sent piece by piece, for as long as whoever asks for them reads: so many at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from cardbox_cli.serve.http.errors import Refused


class BrokenOff(Exception):
    """An answer that has begun and cannot go on, which was logged. Who asked for it sees no end of it."""


class Streams:
    """The places of one app. Belongs to its event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    def check(self) -> None:
        """Raise Refused where none is free."""
        if self._taken >= self._most:
            raise Refused(503, "too many streams are being sent already", headers={"Retry-After": "30"})

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of them, for as long as an answer is sent. Raises as `check` does."""
        self.check()
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


def streams_of(request: Request) -> Streams:
    """The places of the app that a request is made to."""
    streams: Streams = request.app.state.streams
    return streams
