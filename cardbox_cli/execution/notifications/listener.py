"""What a worker blocks on between two looks at the inbox: its subscriptions, and its own patience.

Knows neither Postgres nor NATS. Without any subscription it is plain polling.
"""

from collections.abc import Sequence
from typing import Protocol

from cardbox_cli.store.connection.waker import Waker


class Subscription(Protocol):
    """Notifications that come in in the background, and wake a listener."""

    def close(self) -> None:
        """Stop; soon, and for good."""


class Listener:
    """Opened before the first look at the inbox, it misses nothing: each subscription begins by waking it."""

    def __init__(self) -> None:
        self._waker = Waker()
        self._subscriptions: Sequence[Subscription] = ()

    def attach(self, *subscriptions: Subscription) -> None:
        """Have these subscriptions closed with the listener."""
        self._subscriptions = (*self._subscriptions, *subscriptions)

    def wait(self, seconds: float) -> bool:
        """Block for at most `seconds`. True means "look now": a wakeup came, or may have been missed."""
        return self._waker.wait(seconds)

    def wake(self) -> None:
        """End the wait of now, or the next one; from any thread, and from a signal handler."""
        self._waker.wake()

    def close(self) -> None:
        """Stop listening."""
        for one in self._subscriptions:
            one.close()
        self._waker.close()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
