"""Bells, ears and events as the environment asks for them. One per process; it owns the connection to NATS.

Only with CBX_NATS_URL is anything of NATS imported.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from cardbox_cli.execution.notifications.events import Events, NoEvents
from cardbox_cli.execution.notifications.listener import Listener
from cardbox_cli.execution.notifications.notifier import Announce, Notifier, Notifiers
from cardbox_cli.execution.notifications.postgres import PostgresListening, PostgresNotifier
from cardbox_cli.settings import NATS_URL
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target, find_listen_target

if TYPE_CHECKING:
    from cardbox_cli.execution.notifications.jetstream import Nats


class Wakeups:
    """Open it before the work, so that settings that cannot be meant are refused before anything is written.

    `events` is whom to tell of turns. `announce` may be called from other threads. Raises UsageError.
    """

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self._nats: Nats | None = None
        self.events: Events = NoEvents()
        if url := NATS_URL.text():
            from cardbox_cli.execution.notifications import jetstream

            self._nats = jetstream.Nats(url, announce)
            self.events = self._nats.events()

    def notifiers(self, database: Database) -> Notifiers:
        """What to ring after commits on `database`."""
        notifiers: list[Notifier] = [PostgresNotifier(database)]
        if self._nats is not None:
            notifiers.append(self._nats.notifier())
        return Notifiers(notifiers, self._announce)

    def listener(
        self, target: Target, *, project_id: str | None, worker_targets: Collection[str] | None
    ) -> Listener:
        """What to wait on for work of these targets. None stands for all: projects, or targets."""
        target = find_listen_target(target)
        listener = Listener()
        listener.attach(PostgresListening(target, project_id, worker_targets, listener.wake, self._announce))
        if self._nats is not None:
            listening = self._nats.listen(project_id, worker_targets, listener.wake)
            if listening is not None:
                listener.attach(listening)
        return listener

    def close(self) -> None:
        """Let go of NATS."""
        if self._nats is not None:
            self._nats.close()

    def __enter__(self) -> "Wakeups":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
