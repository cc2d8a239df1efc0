"""The notifiers, listeners and event publisher of a process, as its environment configures them.

nats-py is imported only if CBX_NATS_URL is set.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING

from cardbox_cli.execution.notifications.notifier import Announce, Notifier, Notifiers, Publish, Wakeup
from cardbox_cli.settings import NATS_URL
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.notifications import Listener, Waker, notify, payload_filter
from cardbox_cli.store.connection.target import Target, find_listen_target

if TYPE_CHECKING:
    from cardbox_cli.execution.notifications.nats import Nats


_LISTEN_TIMEOUT_SECONDS = 3600.0
_CLOSE_TIMEOUT_SECONDS = 2.0


class PostgresNotifier:
    """A notifier that runs NOTIFY in its own transaction, on the connection that committed the work."""

    name = "Postgres"

    def __init__(self, database: Database) -> None:
        self._database = database

    def notify(self, wakeups: Sequence[Wakeup]) -> None:
        notify(self._database, *((wakeup.project_id, wakeup.worker_target) for wakeup in wakeups))


class PostgresSubscription:
    """A thread that calls `on_notification` for each matching NOTIFY, and whenever it may have missed one."""

    def __init__(
        self,
        target: Target,
        project_id: str | None,
        worker_targets: Collection[str] | None,
        on_notification: Callable[[], None],
        announce: Announce,
    ) -> None:
        self._listener = Listener(target, payload_filter(project_id, worker_targets), announce)
        self._on_notification = on_notification
        self._closing = False
        self._thread = Thread(target=self._listen, name="cbx listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. If the thread is still connecting, it ends later."""
        self._closing = True
        self._listener.interrupt()
        self._thread.join(_CLOSE_TIMEOUT_SECONDS)

    def _listen(self) -> None:
        try:
            while not self._closing:
                if self._listener.wait(_LISTEN_TIMEOUT_SECONDS):
                    self._on_notification()
        finally:
            self._listener.close()


class WakeupListener(ExitStack):
    """A listener on which a worker waits between two polls, until a notification or a timeout.

    Open it before the first poll. Each subscription begins with a wakeup, so nothing is missed. Closing the
    listener ends its subscriptions. Without subscriptions, a wait always lasts until its timeout.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waker = Waker()
        self.callback(self._waker.close)

    def wait(self, seconds: float) -> bool:
        """Block for at most `seconds`. Return True if the worker must poll: a wakeup came or may be lost."""
        return self._waker.wait(seconds)

    def wake(self) -> None:
        """End the current wait, or the next one. Safe in any thread and in a signal handler."""
        self._waker.wake()


class Wakeups(ExitStack):
    """The notifications of a process. Open it first, so that invalid settings fail before any write.

    `publish` publishes events of turns, or is None. Any thread may call `announce`. Raises UsageError.
    """

    def __init__(self, announce: Announce) -> None:
        super().__init__()
        self._announce = announce
        self._nats: Nats | None = None
        self.publish: Publish | None = None
        if url := NATS_URL.text():
            from cardbox_cli.execution.notifications import nats

            self._nats = nats.Nats(url, announce)
            self.callback(self._nats.close)
            self.publish = self._nats.publish

    def notifiers(self, database: Database) -> Notifiers:
        notifiers: list[Notifier] = [PostgresNotifier(database)]
        if self._nats is not None:
            notifiers.append(self._nats)
        return Notifiers(notifiers, self._announce)

    def listener(
        self, target: Target, *, project_id: str | None, worker_targets: Collection[str] | None
    ) -> WakeupListener:
        """Return a listener for work of this project and these targets. None means all of them."""
        target = find_listen_target(target)
        listener = WakeupListener()
        subscriber = project_id, worker_targets, listener.wake
        listener.callback(PostgresSubscription(target, *subscriber, self._announce).close)
        if self._nats is not None and (end := self._nats.subscribe(*subscriber)):
            listener.callback(end)
        return listener
