"""NATS as a notifier, as a subscription, and as the way of events.

Wakeups and events go into JetStream. Each worker subscribes for itself: every one gets every wakeup, and none
leaves a consumer behind on the server. A wakeup that comes while a worker's connection is down is lost to it;
it looks when the connection is back.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import Lock

from cardbox_cli.errors import CbxError
from cardbox_cli.execution.notifications.events import TurnEvent
from cardbox_cli.execution.notifications.nats import NatsConnection, SubjectSubscription, parse_servers
from cardbox_cli.execution.notifications.notifier import Announce, Wakeup
from cardbox_cli.execution.notifications.protocol import event_message, wakeup_message, wakeup_subject


class Nats:
    """A notifier, and the way of events, on one connection, which is made when first wanted."""

    name = "NATS"

    def __init__(self, url: str, announce: Announce) -> None:
        self._servers = parse_servers(url)
        self._announce = announce
        self._made: NatsConnection | None = None
        self._making = Lock()
        self._events_fail = False

    def notify(self, wakeups: Sequence[Wakeup]) -> None:
        """Publish all of them. One whose names no subject can hold does not keep the others from it."""
        messages, refused = [], None
        for wakeup in wakeups:
            try:
                messages.append(wakeup_message(wakeup))
            except CbxError as exc:
                refused = exc
        if messages:
            self._connection.publish(messages)
        if refused is not None:
            raise refused

    def publish(self, event: TurnEvent) -> None:
        """Publish the event, if that can be done; a failure is announced once, and again after a success."""
        try:
            self._connection.publish([event_message(event)])
        except CbxError as exc:
            if not self._events_fail:
                self._announce(f"warning: no events by NATS: {exc.message}")
            self._events_fail = True
        else:
            self._events_fail = False

    def subscribe(
        self,
        project_id: str | None,
        worker_targets: Collection[str] | None,
        on_notification: Callable[[], None],
    ) -> Callable[[], None] | None:
        """Call `on_notification` for each wanted wakeup, and whenever one may have been missed.

        What ends that; None where no subject can name what is wanted.
        """
        subjects = []
        for target in (None,) if worker_targets is None else worker_targets:
            try:
                subjects.append(wakeup_subject(project_id, target))
            except CbxError as exc:
                self._announce(f"warning: no wakeups by NATS: {exc.message}; workers poll")
        if not subjects:
            return None
        connection, subscription = self._connection, SubjectSubscription(subjects, on_notification)
        connection.subscribe(subscription)
        return partial(connection.unsubscribe, subscription)

    @property
    def _connection(self) -> NatsConnection:
        with self._making:
            if self._made is None:
                self._made = NatsConnection(self._servers, self._announce)
            return self._made

    def close(self) -> None:
        """Close the connection, if one was made."""
        if self._made is not None:
            self._made.close()
