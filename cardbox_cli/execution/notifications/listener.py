"""What a worker blocks on between two looks at the inbox: everything that listens, and its own patience.

Knows neither Postgres nor NATS. Without any listener an ear is plain polling.
"""

from collections.abc import Sequence
from typing import Protocol

from cardbox_cli.store.connection.waker import Waker


class Listening(Protocol):
    """Something that listens in the background and wakes an ear."""

    def close(self) -> None:
        """Stop listening; soon, and for good."""


class Listener:
    """Opened before the first look at the inbox, it misses nothing: each listener wakes it as it begins."""

    def __init__(self) -> None:
        self._waker = Waker()
        self._listening: Sequence[Listening] = ()

    def attach(self, *listening: Listening) -> None:
        """Make these the listeners that closing ends."""
        self._listening = (*self._listening, *listening)

    def wait(self, seconds: float) -> bool:
        """Block for at most `seconds`. True means "look now": somebody rang, or may have rung unheard."""
        return self._waker.wait(seconds)

    def wake(self) -> None:
        """End the wait of now, or the next one; from any thread, and from a signal handler."""
        self._waker.wake()

    def close(self) -> None:
        """Stop listening."""
        for one in self._listening:
            one.close()
        self._waker.close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
