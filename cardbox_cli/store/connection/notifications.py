"""Notifications by Postgres: NOTIFY after a commit, and LISTEN on a connection of its own.

A payload is `PROJECT/WORKER_TARGET`, or `sha256:` and the digest of that where it is longer than 200 bytes.
Rows are the truth: a notification that is lost costs time until the next poll, and nothing else.
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

# Waking a thread that waits: from other threads, from signal handlers, and by what comes in on a socket.
#
# Knows nothing of who waits for what.


class Waker:
    """What was woken stays woken until somebody waits; waking twice is waking once."""

    def __init__(self) -> None:
        self._mine, self._theirs = socket.socketpair()
        self._mine.setblocking(False)
        self._theirs.setblocking(False)

    def wake(self) -> None:
        """End the wait of now, or the next one at once. Safe anywhere; harmless when closed."""
        # A full buffer means that the waiter has enough to wake up to.
        with suppress(OSError):
            self._theirs.send(b"!")

    def wait(self, seconds: float, *others: int) -> bool:
        """Block until woken, or until a file descriptor of `others` can be read; False after `seconds`."""
        with selectors.DefaultSelector() as selector:
            for source in (self._mine.fileno(), *others):
                selector.register(source, selectors.EVENT_READ)
            ready = selector.select(max(seconds, 0))
        # Nothing is there to read where time ran out, or where others woke us.
        with suppress(BlockingIOError):
            self._mine.recv(65536)
        return bool(ready)

    def close(self) -> None:
        """Give the sockets back. Nobody may wait any more."""
        self._mine.close()
        self._theirs.close()


LONGEST = 200
_DIGEST = "sha256:"

# A peer that vanished without a word is noticed within a minute, and firewalls see that the line is in use.
_OPTIONS: dict[str, Any] = {
    "application_name": "cbx listen",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
Wanted = Callable[[str], bool]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


def payload(project_id: str, worker_target: str) -> str:
    """The notification for the workers of `worker_target`. Never longer than LONGEST bytes."""
    text = f"{project_id}/{worker_target}"
    encoded = text.encode()
    return text if len(encoded) <= LONGEST else _DIGEST + hashlib.sha256(encoded).hexdigest()


def notify(database: Database, *receivers: tuple[str, str]) -> None:
    """Wake the workers of every (project, worker target), after the commit of what they shall find.

    A transaction of its own: NOTIFY holds a lock of the whole server until its commit is on disk, and its
    failures must not become those of the work. Raises Conflict where a transaction is still open.
    """
    if not database.commits_itself:
        raise Conflict(
            "the transaction is still open, and what workers shall find is not committed",
            hint="notify after the commit",
        )
    payloads = sorted({payload(*receiver) for receiver in receivers})
    if payloads:
        database.run("notify", payloads=payloads)


def wanted(project_id: str | None, worker_targets: Collection[str] | None) -> Wanted:
    """Whether a notification may be for a listener to one project, or any, and to some targets, or all."""
    if project_id is not None and worker_targets is not None:
        return frozenset(payload(project_id, target) for target in worker_targets).__contains__
    beginning = "" if project_id is None else f"{project_id}/"
    ends = ("",) if worker_targets is None else tuple(f"/{target}" for target in worker_targets)
    # A digest tells nothing in part, so it may be.
    return lambda text: text.startswith(_DIGEST) or (text.startswith(beginning) and text.endswith(ends))


class Listener:
    """Receives notifications on a connection of its own, which is made again whenever it breaks.

    LISTEN belongs to a session: it works on no replica, and behind no pooler in transaction mode. What is
    in the way is announced once; from then until it works again the caller polls. Starts no server.
    """

    def __init__(self, target: Target, wanted: Wanted, announce: Callable[[str], None]) -> None:
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
        """Block until a wanted notification, or until some may have been missed: both mean "look now".

        False after `seconds`, or when interrupted. The first wait says "look now" as soon as it listens.
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
        """End the wait of now, or the next one; from any thread."""
        self._interrupted = True
        self._waker.wake()

    def close(self) -> None:
        """Close the connection. Nobody may wait any more."""
        self._disconnect()
        self._waker.close()

    def _connect(self) -> bool:
        try:
            database = Database.connect(self._target, timeout=5, start=False, **_OPTIONS)
            try:
                database.run("listen")
                self._look_for_pooler(database)
            except BaseException:
                database.close()
                raise
        except CbxError as exc:
            self._warn_once(exc)
            self._next_try = monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            return False
        self._database = database
        self._pause = _FIRST_PAUSE
        if self._warned:
            self._announce("wakeups from Postgres arrive again")
            self._warned = False
        return True

    def _look_for_pooler(self, database: Database) -> None:
        if not database.direct and not self._warned_of_pooler:
            self._warned_of_pooler = True
            self._announce(
                "warning: a pooler stands before Postgres, and in transaction mode lets no wakeup through; "
                "workers poll. Name a direct connection in CBX_LISTEN_URL"
            )

    def _drain(self) -> bool:
        """Read what has come in. True where a wanted notification is among it, or the connection broke."""
        if self._database is None:
            return False
        try:
            with driver_errors.translated():
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
