"""NATS as a notifier, as a subscription, and as the way of events.

Wakeups and events go into JetStream. Each worker subscribes for itself: every one gets every wakeup, and none
leaves a consumer behind on the server. A wakeup that comes while a worker's connection is down is lost to it;
it looks when the connection is back.
"""

from collections.abc import Callable, Collection, Sequence
from threading import Lock

from cardbox_cli.errors import CbxError
from cardbox_cli.execution.notifications.events import TurnEvent
from cardbox_cli.execution.notifications.nats import NatsConnection, SubjectSubscription, parse_servers
from cardbox_cli.execution.notifications.notifier import Announce, Wakeup
from cardbox_cli.execution.notifications.protocol import event_message, wakeup_message, wakeup_subject


class Nats:
    """One connection for all that a process wants of NATS. It is made when first wanted."""

    def __init__(self, url: str, announce: Announce) -> None:
        self._servers = parse_servers(url)
        self._announce = announce
        self._made: NatsConnection | None = None
        self._making = Lock()

    def notifier(self) -> "NatsNotifier":
        """Publishes wakeups to the streams of the protocol."""
        return NatsNotifier(self)

    def events(self) -> "NatsEvents":
        """Publishes events of turns there."""
        return NatsEvents(self, self._announce)

    def subscribe(
        self,
        project_id: str | None,
        worker_targets: Collection[str] | None,
        on_notification: Callable[[], None],
    ) -> "NatsSubscription | None":
        """Call `on_notification` for each wanted wakeup, and whenever one may have been missed.

        None where no subject can name what is wanted.
        """
        subjects = []
        for target in (None,) if worker_targets is None else worker_targets:
            try:
                subjects.append(wakeup_subject(project_id, target))
            except CbxError as exc:
                self._announce(f"warning: no wakeups by NATS: {exc.message}; workers poll")
        return NatsSubscription(self.connection, subjects, on_notification) if subjects else None

    @property
    def connection(self) -> NatsConnection:
        """The connection."""
        with self._making:
            if self._made is None:
                self._made = NatsConnection(self._servers, self._announce)
            return self._made

    def close(self) -> None:
        """Close the connection, if one was made."""
        if self._made is not None:
            self._made.close()


class NatsNotifier:
    """A wakeup for the workers of this system and of others that speak the protocol."""

    name = "NATS"

    def __init__(self, nats: Nats) -> None:
        self._nats = nats

    def notify(self, wakeups: Sequence[Wakeup]) -> None:
        """Publish all of them. One whose names no subject can hold does not keep the others from it."""
        messages, refused = [], None
        for wakeup in wakeups:
            try:
                messages.append(wakeup_message(wakeup))
            except CbxError as exc:
                refused = exc
        if messages:
            self._nats.connection.publish(messages)
        if refused is not None:
            raise refused


class NatsEvents:
    """Events of turns. What cannot be sent is announced once, and again only after it had gone well."""

    def __init__(self, nats: Nats, announce: Announce) -> None:
        self._nats = nats
        self._announce = announce
        self._failure: str | None = None

    def publish(self, event: TurnEvent) -> None:
        """Publish the event, if that can be done."""
        failure = None
        try:
            self._nats.connection.publish([event_message(event)])
        except CbxError as exc:
            failure = f"warning: no events by NATS: {exc.message}"
        # Once until it goes well again: one trouble may have several messages.
        if failure is not None and self._failure is None:
            self._announce(failure)
        self._failure = failure


class NatsSubscription:
    """A subscription of this process alone."""

    def __init__(
        self, connection: NatsConnection, subjects: Sequence[str], on_notification: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._subscription = SubjectSubscription(subjects, on_notification)
        connection.subscribe(self._subscription)

    def close(self) -> None:
        """End it."""
        self._connection.unsubscribe(self._subscription)
