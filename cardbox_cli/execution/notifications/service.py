"""Notifiers, listeners and events as the environment asks for them.

One per process; it owns the connection to NATS. Only with CBX_NATS_URL is anything of NATS imported.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from cardbox_cli.execution.notifications.events import Publish
from cardbox_cli.execution.notifications.listener import Listener
from cardbox_cli.execution.notifications.notifier import Announce, Notifier, Notifiers
from cardbox_cli.execution.notifications.postgres import PostgresNotifier, PostgresSubscription
from cardbox_cli.settings import NATS_URL
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target, find_listen_target

if TYPE_CHECKING:
    from cardbox_cli.execution.notifications.jetstream import Nats


class Wakeups:
    """Open it before the work, so that settings that cannot be meant are refused before anything is written.

    `publish` is for events of turns, where anybody wants them. `announce` may be called from other threads.
    Raises UsageError.
    """

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self._nats: Nats | None = None
        self.publish: Publish | None = None
        if url := NATS_URL.text():
            from cardbox_cli.execution.notifications import jetstream

            self._nats = jetstream.Nats(url, announce)
            self.publish = self._nats.events().publish

    def notifiers(self, database: Database) -> Notifiers:
        """What to notify by after commits on `database`."""
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
        listener.attach(
            PostgresSubscription(target, project_id, worker_targets, listener.wake, self._announce)
        )
        if self._nats is not None:
            subscription = self._nats.subscribe(project_id, worker_targets, listener.wake)
            if subscription is not None:
                listener.attach(subscription)
        return listener

    def close(self) -> None:
        """Close the connection to NATS."""
        if self._nats is not None:
            self._nats.close()

    def __enter__(self) -> "Wakeups":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
