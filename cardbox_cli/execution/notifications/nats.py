"""NATS as a notifier, as a subscription, and as a publisher of events. Only this module uses nats-py.

nats-py uses asyncio, so the connection has its own thread. This module reopens a broken connection, and a
caller waits for it for a few seconds at most. cbx publishes wakeups and events to JetStream. Workers use
plain subscriptions, so every worker gets every wakeup. A worker misses wakeups while its connection is down,
so it polls when the connection is back. `protocol.py` defines the messages.
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
        "CBX_NATS_URL is set, but the library for NATS is not installed",
        hint="pip install 'cardbox-cli[nats]', or unset CBX_NATS_URL",
    ) from None

_TIMEOUT_SECONDS = 2.0
# Publishing fails at once for this many seconds after it has timed out.
_COOLDOWN_SECONDS = 30.0
_MIN_PAUSE, _MAX_PAUSE = 0.1, 10.0

_HINT = "check CBX_NATS_URL, and that a nats-server with JetStream runs there"


class Server(NamedTuple):
    """A server's address and credentials. Only `address` may be printed."""

    address: str
    user: str | None
    password: str | None
    token: str | None


def parse_servers(url: str) -> list[Server]:
    """Parse CBX_NATS_URL. Raises UsageError, without quoting the value, which may contain a password."""
    try:
        return [_parse_server(part.strip()) for part in url.split(",")]
    except ValueError:
        raise UsageError(
            "CBX_NATS_URL is malformed",
            hint="use nats://USER:PASSWORD@HOST:4222 or tls://…, comma-separated; @ in a password is %40",
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
    """A subscription that calls `on_notification` for each message, and whenever it may have missed one."""

    def __init__(self, subjects: Sequence[str], on_notification: Callable[[], None]) -> None:
        self.subjects = subjects
        self.on_notification = on_notification
        self.subscriptions: list[Subscription] = []

    async def begin(self, client: Client) -> None:
        """Subscribe on `client`. The subscription gets every message that is published after this returns."""

        async def handle_message(_: Msg) -> None:
            self.on_notification()

        self.subscriptions = [await client.subscribe(subject, cb=handle_message) for subject in self.subjects]
        await client.flush(int(_TIMEOUT_SECONDS))
        self.on_notification()


class NatsConnection:
    """A connection with its own thread for the async methods. Other threads call the other methods."""

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
        """Publish the messages and wait until a stream has stored all of them.

        Raises ServiceUnavailable after about 2 seconds.
        """
        sending = asyncio.run_coroutine_threadsafe(self._publish(messages), self._loop)
        try:
            sending.result(_TIMEOUT_SECONDS + 1)
        except TimeoutError:
            raise self._unavailable() from None

    def subscribe(self, subscription: SubjectSubscription) -> None:
        """Begin a subscription now, or as soon as there is a connection."""
        # An error needs no warning, because polling finds the work and the next connection subscribes again.
        asyncio.run_coroutine_threadsafe(self._begin(subscription), self._loop)

    def unsubscribe(self, subscription: SubjectSubscription) -> None:
        asyncio.run_coroutine_threadsafe(self._end(subscription), self._loop)

    def close(self) -> None:
        """Close the connection within seconds, even if it does not respond."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_TIMEOUT_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run_until_closed())

    async def _run_until_closed(self) -> None:
        connecting = asyncio.create_task(self._keep_connected())
        await self._closing.wait()
        connecting.cancel()
        await asyncio.wait([connecting], timeout=_TIMEOUT_SECONDS)

    async def _keep_connected(self) -> None:
        pause = _MIN_PAUSE
        while True:
            for server in self._servers:
                if await self._connect_and_wait(server):
                    pause = _MIN_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)

    async def _connect_and_wait(self, server: Server) -> bool:
        """Connect to `server` and wait until the connection breaks. Return False if it cannot connect."""
        client, lost = Client(), asyncio.Event()
        try:
            await self._connect(client, server, lost)
            for subscription in self._subscribed:
                await subscription.begin(client)
        except Exception as exc:  # the library may raise anything, and this thread must continue
            if not isinstance(exc, TimeoutError):
                self._trouble = _error_text(exc)
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
        async def handle_error(exc: Exception) -> None:
            self._trouble = _error_text(exc)

        async def handle_closed() -> None:
            lost.set()

        async with asyncio.timeout(_TIMEOUT_SECONDS / len(self._servers)):
            # cbx reconnects itself, so that subscriptions know when they may have missed messages.
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
                error_cb=handle_error,
                closed_cb=handle_closed,
            )
            await self._make_streams(client)

    async def _make_streams(self, client: Client) -> None:
        """Create missing streams. A client that may not do this can still listen, and perhaps publish."""
        streams = client.jetstream(timeout=_TIMEOUT_SECONDS)
        self._no_streams = None
        for stream in STREAMS:
            try:
                try:
                    await streams.stream_info(stream.name)
                except NotFoundError:
                    subjects, max_age = [stream.subject], stream.max_age
                    await streams.add_stream(name=stream.name, subjects=subjects, max_age=max_age)
            except NatsError as exc:
                self._no_streams = f"no stream {stream.name}: {_error_text(exc)}"

    async def _begin(self, subscription: SubjectSubscription) -> None:
        self._subscribed.append(subscription)
        if self._client is not None:
            await subscription.begin(self._client)

    async def _end(self, subscription: SubjectSubscription) -> None:
        self._subscribed.remove(subscription)
        if self._client is not None:
            for nats_subscription in subscription.subscriptions:
                await nats_subscription.unsubscribe()

    def _announce_state(self, *, down: bool) -> None:
        if self._subscribed and down != self._is_announced_down:
            self._is_announced_down = down
            problem = f"warning: no wakeups by NATS: {self._addresses()}: {self._trouble}; workers poll"
            self._announce(problem if down else "wakeups by NATS arrive again")

    async def _publish(self, messages: Sequence[NatsMessage]) -> None:
        if self._loop.time() < self._quiet_until:
            raise self._unavailable()
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self._connected.wait()
                await asyncio.gather(*map(self._send, messages))
        except TimeoutError:
            self._quiet_until = self._loop.time() + _COOLDOWN_SECONDS
            raise self._unavailable() from None
        except (NatsError, OSError) as exc:
            raise self._unavailable(_error_text(exc)) from exc

    async def _send(self, message: NatsMessage) -> None:
        if self._client is None:
            raise ServiceUnavailable(f"{self._addresses()}: {self._trouble}", hint=_HINT)
        streams = self._client.jetstream(timeout=_TIMEOUT_SECONDS)
        await streams.publish(message.subject, message.body, headers=dict(message.headers))

    def _unavailable(self, trouble: str | None = None) -> ServiceUnavailable:
        why = self._no_streams or trouble or self._trouble
        return ServiceUnavailable(f"{self._addresses()}: {why}", hint=_HINT)

    def _addresses(self) -> str:
        return ", ".join(server.address for server in self._servers)


def _error_text(exc: Exception) -> str:
    """Return the message of an exception. It cannot quote a password, because no address contains one."""
    return str(exc).strip().removeprefix("nats: ") or type(exc).__name__


class Nats:
    """A notifier and publisher of events. Both use one connection, which is opened at the first use."""

    name = "NATS"

    def __init__(self, url: str, announce: Announce) -> None:
        self._servers = parse_servers(url)
        self._announce = announce
        self._made_connection: NatsConnection | None = None
        self._lock = Lock()
        self._events_fail = False

    def notify(self, wakeups: Sequence[Wakeup]) -> None:
        """Publish all wakeups. If a subject would be invalid, publishes the other wakeups and then raises."""
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
        """Publish the event if possible. Several failures in a row cause only one warning."""
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
        """Call `on_notification` for each matching wakeup, and whenever one may have been missed.

        Return a function that ends the subscription, or None if no target can be part of a subject.
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
        with self._lock:
            if self._made_connection is None:
                self._made_connection = NatsConnection(self._servers, self._announce)
            return self._made_connection

    def close(self) -> None:
        if self._made_connection is not None:
            self._made_connection.close()
