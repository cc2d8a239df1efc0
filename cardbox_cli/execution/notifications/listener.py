"""What a worker blocks on between two looks at the inbox: its subscriptions, and its own patience.

Knows neither Postgres nor NATS. Without any subscription it is plain polling.
"""

from contextlib import ExitStack

from cardbox_cli.store.connection.waker import Waker


class Listener(ExitStack):
    """Opened before the first look at the inbox, it misses nothing: each subscription begins by waking it.

    What ends a subscription is called back when the listener closes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waker = Waker()
        self.callback(self._waker.close)

    def wait(self, seconds: float) -> bool:
        """Block for at most `seconds`. True means "look now": a wakeup came, or may have been missed."""
        return self._waker.wait(seconds)

    def wake(self) -> None:
        """End the wait of now, or the next one; from any thread, and from a signal handler."""
        self._waker.wake()
