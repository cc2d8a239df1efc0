"""Notifiers, listeners and events as the environment asks for them.

One per process; it owns the connection to NATS. Only with CBX_NATS_URL is anything of NATS imported.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING

from cardbox_cli.execution.notifications.notifier import Announce, Notifier, Notifiers, Publish, Wakeup
from cardbox_cli.settings import NATS_URL
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.notifications import Listener, Waker, notify, wanted
from cardbox_cli.store.connection.target import Target, find_listen_target

if TYPE_CHECKING:
    from cardbox_cli.execution.notifications.nats import Nats


# Postgres as a notifier and as a subscription, on `store/connection/notifications`.


_LONG = 3600.0
_PATIENCE = 2.0


class PostgresNotifier:
    """NOTIFY, in a transaction of its own on the connection that the work was committed on."""

    name = "Postgres"

    def __init__(self, database: Database) -> None:
        self._database = database

    def notify(self, wakeups: Sequence[Wakeup]) -> None:
        """Wake the targets of all `wakeups` at once."""
        notify(self._database, *((wakeup.project_id, wakeup.worker_target) for wakeup in wakeups))


class PostgresSubscription:
    """A thread that calls `on_notification` for each wanted one, and whenever one may have been missed."""

    def __init__(
        self,
        target: Target,
        project_id: str | None,
        worker_targets: Collection[str] | None,
        on_notification: Callable[[], None],
        announce: Announce,
    ) -> None:
        self._listener = Listener(target, wanted(project_id, worker_targets), announce)
        self._on_notification = on_notification
        self._closing = False
        self._thread = Thread(target=self._listen, name="cbx listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop. A connection that is just being made is left to its thread."""
        self._closing = True
        self._listener.interrupt()
        self._thread.join(_PATIENCE)

    def _listen(self) -> None:
        try:
            while not self._closing:
                if self._listener.wait(_LONG):
                    self._on_notification()
        finally:
            self._listener.close()


# What a worker blocks on between two looks at the inbox: its subscriptions, and its own patience.
#
# Knows neither Postgres nor NATS. Without any subscription it is plain polling.


class WakeupListener(ExitStack):
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


class Wakeups(ExitStack):
    """Open it before the work, so that settings that cannot be meant are refused before anything is written.

    `publish` is for events of turns, where anybody wants them. `announce` may be called from other threads.
    Raises UsageError.
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
        """What to notify by after commits on `database`."""
        notifiers: list[Notifier] = [PostgresNotifier(database)]
        if self._nats is not None:
            notifiers.append(self._nats)
        return Notifiers(notifiers, self._announce)

    def listener(
        self, target: Target, *, project_id: str | None, worker_targets: Collection[str] | None
    ) -> WakeupListener:
        """What to wait on for work of these targets. None stands for all: projects, or targets."""
        target = find_listen_target(target)
        listener = WakeupListener()
        wanted = project_id, worker_targets, listener.wake
        listener.callback(PostgresSubscription(target, *wanted, self._announce).close)
        if self._nats is not None and (end := self._nats.subscribe(*wanted)):
            listener.callback(end)
        return listener
