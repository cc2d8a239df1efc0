"""One connection of an asker, bounded by what uvicorn leaves open: how long it may ask nothing, how long it
may read nothing, how much it may send that is no body, how many requests it may have waiting.

Who opens as many as there may be keeps nobody out: a new one takes the place of the one that has been without
a request the longest. Owns no answers; what a request may be once it has begun is `bounds.py`'s.
"""

import asyncio
from itertools import count
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST = 512
"""Connections at one time."""
HEAD = 1 << 16
"""Bytes of a request besides its body: the address, headers, trailers, the sizes of chunks."""
PATIENCE = 30.0
"""Seconds from the beginning of a connection, or the end of an answer, to a whole head; and seconds in which
some of an answer must be read."""

_WAITING = 32
"""Requests that are sent before the answer to the first is there."""
_LOOK = 5.0

_numbers = count(1)


class Connection(HttpToolsProtocol):
    """A connection that ends when nothing comes of it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Take the place of another, where there is none left."""
        if len(self.connections) >= MOST - 1:
            self._make_room()
        super().connection_made(transport)
        self._quiet_since = self._read_since = self.loop.time()
        # The loop's time is the same for all that come at once.
        self._number = next(_numbers)
        self._unread = 0
        self._bare = 0
        self._is_heard = False
        self._watch = self.loop.call_later(_LOOK, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what is sent, and end a connection that sends more than anybody needs to."""
        self._is_heard = False
        super().data_received(data)
        self._bare = 0 if self._is_heard else self._bare + len(data)
        if self.transport.is_closing():
            return
        if self._bare > HEAD:
            self.send_400_response(f"A request's head is longer than {HEAD} bytes.")
        elif len(self.pipeline) > _WAITING:
            self.transport.abort()

    def on_body(self, body: bytes) -> None:
        """Some of a body has come."""
        self._is_heard = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._is_heard = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer has been made."""
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: an asker would fill the log, with advice that helps nobody."""

    @property
    def _is_at_work(self) -> bool:
        """Whether an answer is being made to a request that is whole."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    @property
    def _has_begun(self) -> bool:
        """Whether there is a request whose head is whole, and that is not answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        others: list[Any] = [
            each
            for each in self.connections
            if isinstance(each, Connection) and not each._is_at_work and not each.transport.is_closing()
        ]
        if others:
            oldest = min(others, key=lambda each: (each._quiet_since, each._number))
            self.connections.discard(oldest)
            oldest.transport.abort()

    def _look(self) -> None:
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if not unread or unread < self._unread:
            self._read_since = now
        self._unread = unread
        is_silent = not self._has_begun and not unread and now - self._quiet_since > PATIENCE
        if is_silent or now - self._read_since > PATIENCE:
            self.transport.abort()
            return
        self._watch = self.loop.call_later(_LOOK, self._look)
