"""Postgres as a notifier and as a subscription, on `store/connection/notifications`."""

from collections.abc import Callable, Collection, Sequence
from threading import Thread

from cardbox_cli.execution.notifications.notifier import Announce, Wakeup
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.notifications import Listener, notify, wanted
from cardbox_cli.store.connection.target import Target

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
