"""Notifications by Postgres: NOTIFY after a commit, and LISTEN on a dedicated connection.

A payload is `PROJECT/WORKER_TARGET`. If it is longer than 200 bytes, it is `sha256:` and its digest. Workers
read the rows anyway: a lost notification only delays work until the next poll.
"""

import hashlib
import selectors
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from time import monotonic
from typing import Any

from cardbox_cli.errors import CbxError, Conflict
from cardbox_cli.store.connection import driver_errors
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target


class Waker:
    """Wakes a waiting thread. Other threads, signal handlers and readable sockets can wake it.

    If no thread waits, the next wait ends at once. Several wakes before it count as one.
    """

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def wake(self) -> None:
        """End the current wait, or the next one at once. Safe in threads, signal handlers, after `close`."""
        # If the buffer is full, the waiter wakes up anyway.
        with suppress(OSError):
            self._sender.send(b"!")

    def wait(self, seconds: float, *others: int) -> bool:
        """Block until woken, or until a descriptor in `others` is readable. Returns False after `seconds`."""
        with selectors.DefaultSelector() as selector:
            for source in (self._receiver.fileno(), *others):
                selector.register(source, selectors.EVENT_READ)
            ready = selector.select(max(seconds, 0))
        # There is nothing to read after a timeout, or if another descriptor woke us.
        with suppress(BlockingIOError):
            self._receiver.recv(65536)
        return bool(ready)

    def close(self) -> None:
        """Close the sockets. No thread may be waiting."""
        self._receiver.close()
        self._sender.close()


MAX_PAYLOAD_BYTES = 200
_DIGEST = "sha256:"

# Keepalives detect a lost connection within a minute, and prevent firewalls from closing an idle one.
_OPTIONS: dict[str, Any] = {
    "application_name": "cbx listen",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
PayloadFilter = Callable[[str], bool]

_FIRST_PAUSE, _MAX_PAUSE = 0.1, 10.0


def format_payload(project_id: str, worker_target: str) -> str:
    """Return the payload for the workers of `worker_target`, at most MAX_PAYLOAD_BYTES long."""
    text = f"{project_id}/{worker_target}"
    encoded = text.encode()
    return text if len(encoded) <= MAX_PAYLOAD_BYTES else _DIGEST + hashlib.sha256(encoded).hexdigest()


def notify(database: Database, *receivers: tuple[str, str]) -> None:
    """Wake the workers of each (project, worker target). Call it after the commit of their work.

    Notifies in a separate transaction, because NOTIFY locks the whole server until its commit is on disk,
    and its failure must not undo the work. Raises Conflict if a transaction is still open.
    """
    if not database.is_autocommitting:
        what = "cannot notify workers within a transaction, because they would not see its rows"
        raise Conflict(what, hint="call `notify` after the commit")
    payloads = sorted({format_payload(*receiver) for receiver in receivers})
    if payloads:
        database.run("notify", payloads=payloads)


def payload_filter(project_id: str | None, worker_targets: Collection[str] | None) -> PayloadFilter:
    """Return a predicate of payloads for a project and some worker targets. None matches any of them."""
    if project_id is not None and worker_targets is not None:
        return frozenset(format_payload(project_id, target) for target in worker_targets).__contains__
    beginning = "" if project_id is None else f"{project_id}/"
    ends = ("",) if worker_targets is None else tuple(f"/{target}" for target in worker_targets)
    # A payload with a digest does not show its project, so it may match.
    return lambda text: text.startswith(_DIGEST) or (text.startswith(beginning) and text.endswith(ends))


class Listener:
    """Receives notifications on a dedicated connection, and reconnects whenever it breaks.

    LISTEN needs a session of its own: it fails on a replica, and behind a pooler in transaction mode. The
    listener announces a problem once, and the caller polls until it is solved. It never starts a server.
    """

    def __init__(self, target: Target, wanted: PayloadFilter, announce: Callable[[str], None]) -> None:
        self._target = target
        self._wanted = wanted
        self._announce = announce
        self._waker = Waker()
        self._database: Database | None = None
        self._pause = _FIRST_PAUSE
        self._next_try = 0.0
        self._interrupted = False
        self._warned = False
        self._warned_of_pooler = False

    def wait(self, seconds: float) -> bool:
        """Block until a wanted notification arrives, or until one may have been lost. Then returns True.

        Returns False after `seconds`, or if interrupted. The first wait returns True as soon as LISTEN works.
        """
        deadline = monotonic() + seconds
        while True:
            if self._database is None and monotonic() >= self._next_try:
                if self._connect():
                    return True
                continue
            until = deadline if self._database else min(deadline, self._next_try)
            sockets = [self._database.connection.fileno()] if self._database else []
            if self._waker.wait(until - monotonic(), *sockets) and self._drain():
                return True
            if self._interrupted or monotonic() >= deadline:
                self._interrupted = False
                return False

    def interrupt(self) -> None:
        """End the current wait, or the next one. Any thread may call this."""
        self._interrupted = True
        self._waker.wake()

    def close(self) -> None:
        """Close the connection. No thread may be waiting."""
        self._disconnect()
        self._waker.close()

    def _connect(self) -> bool:
        try:
            database = Database.connect(self._target, timeout=5, start=False, **_OPTIONS)
            try:
                database.run("listen")
                self._warn_of_pooler(database)
            except BaseException:
                database.close()
                raise
        except CbxError as exc:
            self._warn_once(exc)
            self._next_try = monotonic() + self._pause
            self._pause = min(2 * self._pause, _MAX_PAUSE)
            return False
        self._database = database
        self._pause = _FIRST_PAUSE
        if self._warned:
            self._announce("wakeups from Postgres arrive again")
            self._warned = False
        return True

    def _warn_of_pooler(self, database: Database) -> None:
        if not database.direct and not self._warned_of_pooler:
            self._warned_of_pooler = True
            self._announce(
                "warning: Postgres is behind a connection pooler, which delivers no wakeups in transaction "
                "mode; workers poll. Set CBX_LISTEN_URL to a direct connection"
            )

    def _drain(self) -> bool:
        """Read all notifications. Returns True if one of them is wanted, or if the connection broke."""
        if self._database is None:
            return False
        try:
            with driver_errors.translate_errors():
                notices = list(self._database.connection.notifies(timeout=0))
        except CbxError as exc:
            self._disconnect()
            self._warn_once(exc)
            return True
        return any(self._wanted(notice.payload) for notice in notices)

    def _warn_once(self, why: CbxError) -> None:
        if not self._warned:
            self._warned = True
            self._announce(f"warning: no wakeups from Postgres: {why.message}; workers poll")

    def _disconnect(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
