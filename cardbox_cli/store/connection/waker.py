"""Waking a thread that waits: from other threads, from signal handlers, and by what comes in on a socket.

Knows nothing of who waits for what.
"""

import selectors
import socket
from contextlib import suppress


class Waker:
    """What was woken stays woken until somebody waits; waking twice is waking once."""

    def __init__(self) -> None:
        self._mine, self._theirs = socket.socketpair()
        self._mine.setblocking(False)
        self._theirs.setblocking(False)

    def wake(self) -> None:
        """End the wait of now, or the next one at once. Safe anywhere; harmless when closed."""
        # A full buffer means that the waiter has enough to wake up to.
        with suppress(OSError):
            self._theirs.send(b"!")

    def wait(self, seconds: float, *others: int) -> bool:
        """Block until woken, or until a file descriptor of `others` can be read; False after `seconds`."""
        with selectors.DefaultSelector() as selector:
            for source in (self._mine.fileno(), *others):
                selector.register(source, selectors.EVENT_READ)
            ready = selector.select(max(seconds, 0))
        # Nothing is there to read where time ran out, or where others woke us.
        with suppress(BlockingIOError):
            self._mine.recv(65536)
        return bool(ready)

    def close(self) -> None:
        """Give the sockets back. Nobody may wait any more."""
        self._mine.close()
        self._theirs.close()
