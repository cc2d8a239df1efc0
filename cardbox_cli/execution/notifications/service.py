"""Notifiers, listeners and events as the environment asks for them.

One per process; it owns the connection to NATS. Only with CBX_NATS_URL is anything of NATS imported.
"""

from collections.abc import Collection
from contextlib import ExitStack
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
            from cardbox_cli.execution.notifications import jetstream

            self._nats = jetstream.Nats(url, announce)
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
    ) -> Listener:
        """What to wait on for work of these targets. None stands for all: projects, or targets."""
        target = find_listen_target(target)
        listener = Listener()
        wanted = project_id, worker_targets, listener.wake
        listener.callback(PostgresSubscription(target, *wanted, self._announce).close)
        if self._nats is not None and (end := self._nats.subscribe(*wanted)):
            listener.callback(end)
        return listener
