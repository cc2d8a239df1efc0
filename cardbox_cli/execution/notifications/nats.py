"""A connection to NATS, in a thread of its own. The only home of the library nats-py, which is asyncio.

It is made again whenever it breaks, and nobody waits long for it. Publishes messages to JetStream and calls
its subscriptions; what messages hold, and for whom they are, others decide.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import Lock, Thread
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from cardbox_cli.errors import CbxError, ServiceUnavailable, UsageError
from cardbox_cli.execution.notifications.notifier import Announce, TurnEvent, Wakeup
from cardbox_cli.execution.notifications.protocol import (
    STREAMS,
    NatsMessage,
    event_message,
    wakeup_message,
    wakeup_subject,
)

try:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.errors import Error as NatsError
    from nats.js.errors import NotFoundError
except ImportError:
    raise UsageError(
        "CBX_NATS_URL is set, and the library for NATS is not installed",
        hint="pip install 'cardbox-cli[nats]', or unset CBX_NATS_URL",
    ) from None

# How long anybody waits for NATS; and for how long, once that was in vain, nobody waits at all.
_PATIENCE = 2.0
_QUIET = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0

_HINT = "check CBX_NATS_URL, and that a nats-server with JetStream runs there"


class Server(NamedTuple):
    """A server's address and who we are to it. Only `address` may be shown."""

    address: str
    user: str | None
    password: str | None
    token: str | None


def parse_servers(url: str) -> list[Server]:
    """The servers of CBX_NATS_URL. Raises UsageError, which does not show it, for it may hold a password."""
    try:
        return [_parse_server(part.strip()) for part in url.split(",")]
    except ValueError:
        raise UsageError(
            "CBX_NATS_URL is malformed",
            hint="nats://USER:PASSWORD@HOST:4222 or tls://…, several with commas; @ in a password is %40",
        ) from None


def _parse_server(text: str) -> Server:
    parts = urlsplit(text if "://" in text else f"nats://{text}")
    if parts.scheme not in ("nats", "tls") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ValueError
    user, password = (unquote(one) if one else None for one in (parts.username, parts.password))
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = f"{parts.scheme}://{host}:{parts.port or 4222}"
    return Server(address, user, password, None) if password else Server(address, None, None, user)


class SubjectSubscription:
    """Calls `on_notification` for each message on `subjects`, and whenever one may have been missed."""

    def __init__(self, subjects: Sequence[str], on_notification: Callable[[], None]) -> None:
        self.subjects = subjects
        self.on_notification = on_notification
        self.subscriptions: list[Subscription] = []

    async def begin(self, client: Client) -> None:
        """Subscribe on `client`. From when this is done on nothing is missed."""

        async def on_message(_: Msg) -> None:
            self.on_notification()

        self.subscriptions = [await client.subscribe(subject, cb=on_message) for subject in self.subjects]
        await client.flush(int(_PATIENCE))
        self.on_notification()


class NatsConnection:
    """The connection. Its methods are called from other threads; those with `async` run in its own."""

    def __init__(self, servers: Sequence[Server], announce: Announce) -> None:
        self._servers = servers
        self._announce = announce
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._closing = asyncio.Event()
        self._subscribed: list[SubjectSubscription] = []
        self._trouble = "no answer yet"
        self._no_streams: str | None = None
        self._quiet_until = 0.0
        self._is_announced_down = False
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="cbx nats", daemon=True)
        self._thread.start()

    def publish(self, messages: Sequence[NatsMessage]) -> None:
        """Publish, until a stream has all of them. Raises ServiceUnavailable within some 2 seconds."""
        sending = asyncio.run_coroutine_threadsafe(self._publish(messages), self._loop)
        try:
            sending.result(_PATIENCE + 1)
        except TimeoutError:
            raise self._unavailable() from None

    def subscribe(self, subscription: SubjectSubscription) -> None:
        """Begin it, now or from when there is a connection on."""
        # What goes wrong in it is not announced: polling finds the work, and the next connection begins anew.
        asyncio.run_coroutine_threadsafe(self._begin(subscription), self._loop)

    def unsubscribe(self, subscription: SubjectSubscription) -> None:
        """End it."""
        asyncio.run_coroutine_threadsafe(self._end(subscription), self._loop)

    def close(self) -> None:
        """Close the connection; within seconds, whatever becomes of it."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        keeping = asyncio.create_task(self._keep_connected())
        await self._closing.wait()
        keeping.cancel()
        await asyncio.wait([keeping], timeout=_PATIENCE)

    async def _keep_connected(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            for server in self._servers:
                if await self._stay_with(server):
                    pause = _FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _stay_with(self, server: Server) -> bool:
        """Connect to `server` and stay until the connection breaks. False where none came about."""
        client, lost = Client(), asyncio.Event()
        try:
            await self._connect(client, server, lost)
            for subscription in self._subscribed:
                await subscription.begin(client)
        except Exception as exc:  # whatever the library lets out: this thread must live on
            if not isinstance(exc, TimeoutError):
                self._trouble = _words(exc)
            self._announce_state(down=True)
            return False
        else:
            self._client = client
            self._quiet_until = 0.0
            self._connected.set()
            self._announce_state(down=False)
            await lost.wait()
            self._trouble = "the connection was lost"
            self._announce_state(down=True)
            for subscription in self._subscribed:
                subscription.on_notification()
            return True
        finally:
            self._client = None
            self._connected.clear()
            await client.close()

    async def _connect(self, client: Client, server: Server, lost: asyncio.Event) -> None:
        async def on_error(exc: Exception) -> None:
            self._trouble = _words(exc)

        async def on_closed() -> None:
            lost.set()

        async with asyncio.timeout(_PATIENCE / len(self._servers)):
            # Connecting anew is ours, so that subscriptions learn what they missed.
            await client.connect(
                server.address,
                user=server.user,
                password=server.password,
                token=server.token,
                name="cbx",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                ping_interval=20,
                error_cb=on_error,
                closed_cb=on_closed,
            )
            await self._make_streams(client)

    async def _make_streams(self, client: Client) -> None:
        """Make the streams that are missing. Who may not do so can still listen, and perhaps publish."""
        streams = client.jetstream(timeout=_PATIENCE)
        self._no_streams = None
        for stream in STREAMS:
            try:
                try:
                    await streams.stream_info(stream.name)
                except NotFoundError:
                    await streams.add_stream(
                        name=stream.name, subjects=[stream.subject], max_age=stream.max_age
                    )
            except NatsError as exc:
                self._no_streams = f"no stream {stream.name}: {_words(exc)}"

    async def _begin(self, subscription: SubjectSubscription) -> None:
        self._subscribed.append(subscription)
        if self._client is not None:
            await subscription.begin(self._client)

    async def _end(self, subscription: SubjectSubscription) -> None:
        self._subscribed.remove(subscription)
        if self._client is not None:
            for of_subject in subscription.subscriptions:
                await of_subject.unsubscribe()

    def _announce_state(self, *, down: bool) -> None:
        if self._subscribed and down != self._is_announced_down:
            self._is_announced_down = down
            self._announce(
                f"warning: no wakeups by NATS: {self._where()}: {self._trouble}; workers poll"
                if down
                else "wakeups by NATS arrive again"
            )

    async def _publish(self, messages: Sequence[NatsMessage]) -> None:
        if self._loop.time() < self._quiet_until:
            raise self._unavailable()
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._connected.wait()
                await asyncio.gather(*map(self._send, messages))
        except TimeoutError:
            self._quiet_until = self._loop.time() + _QUIET
            raise self._unavailable() from None
        except (NatsError, OSError) as exc:
            raise self._unavailable(_words(exc)) from exc

    async def _send(self, message: NatsMessage) -> None:
        if self._client is None:
            raise ServiceUnavailable(f"{self._where()}: {self._trouble}", hint=_HINT)
        await self._client.jetstream(timeout=_PATIENCE).publish(
            message.subject, message.body, headers=dict(message.headers)
        )

    def _unavailable(self, trouble: str | None = None) -> ServiceUnavailable:
        why = self._no_streams or trouble or self._trouble
        return ServiceUnavailable(f"{self._where()}: {why}", hint=_HINT)

    def _where(self) -> str:
        return ", ".join(server.address for server in self._servers)


def _words(exc: Exception) -> str:
    """The library's message. No address with a password was ever given to it."""
    return str(exc).strip().removeprefix("nats: ") or type(exc).__name__


# NATS as a notifier, as a subscription, and as the way of events.
#
# Wakeups and events go into JetStream. Each worker subscribes for itself: every one gets every wakeup, and
# none
# leaves a consumer behind on the server. A wakeup that comes while a worker's connection is down is lost to
# it;
# it looks when the connection is back.


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
