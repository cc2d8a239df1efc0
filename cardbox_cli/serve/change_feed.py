"""Streams of changes. A followed project is read when it may have changed, once for all its followers.

A project may have changed when Postgres sends a notification. It is also read after a pause, because some
changes send no notification and not every connection can listen. A feed belongs to one event loop.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic

import anyio
from anyio import to_thread

from cardbox_cli.execution.notifications.service import PostgresSubscription
from cardbox_cli.serve.http.project_access import ProjectRequest
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.views.recent_changes import ChangeViews, ProjectState

_LOG = logging.getLogger("cbx.serve")

MAX_WAIT_SECONDS = 15.0
"""The maximum number of seconds of one wait."""
# Seconds from a notification to the read. The pause combines notifications that arrive together.
_DEBOUNCE_SECONDS = 0.1


class _FollowedProject:
    def __init__(self) -> None:
        self.followers = 0
        self.lock = anyio.Lock()
        self.count = -1
        self.state: ProjectState | None = None


class ChangeFeed:
    """Reads projects for their followers. `target`: where to listen. `pause`: seconds between two reads."""

    def __init__(self, target: Target, *, pause: float) -> None:
        self._target = target
        self._pause = pause
        self._projects: dict[str, _FollowedProject] = {}
        self._subscription: PostgresSubscription | None = None
        # The number of times that something may have changed, and the time of the last one.
        self.count = 0
        self._at = 0.0
        self._change = anyio.Event()
        self.is_over = False

    @asynccontextmanager
    async def follow(self, access: ProjectRequest) -> AsyncIterator["ProjectFollower"]:
        """Yield a follower of a project. Leave the context to stop following."""
        self._listen()
        followed = self._projects.setdefault(access.project_id, _FollowedProject())
        followed.followers += 1
        try:
            yield ProjectFollower(self, followed, access)
        finally:
            followed.followers -= 1
            if not followed.followers:
                del self._projects[access.project_id]

    def end(self) -> None:
        """End all waits and all streams, because the server stops."""
        self.is_over = True
        self._change.set()

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()

    async def wait_for_change(self, seen: int) -> int:
        """Wait at most `MAX_WAIT_SECONDS` until something may have changed since `seen`; return the count."""
        until = monotonic() + MAX_WAIT_SECONDS
        while self.count == seen and not self.is_over and (now := monotonic()) < until:
            due = self._at + self._pause
            if now >= due:
                self._note_change()
                break
            # Timers may fire a little early.
            with anyio.move_on_after(min(due, until) - now):
                await self._change.wait()
                await anyio.sleep(_DEBOUNCE_SECONDS)
        return self.count

    def _listen(self) -> None:
        if not self._projects:
            self._at = monotonic()
        if self._subscription is None:
            loop = asyncio.get_running_loop()

            def notify() -> None:
                # The loop may have ended already.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._note_change)

            self._subscription = PostgresSubscription(self._target, None, None, notify, _LOG.debug)

    def _note_change(self) -> None:
        self.count += 1
        self._at = monotonic()
        self._change.set()
        self._change = anyio.Event()


class ProjectFollower:
    """A client that follows a project."""

    def __init__(self, feed: ChangeFeed, followed: _FollowedProject, access: ProjectRequest) -> None:
        self._feed = feed
        self._followed = followed
        self._access = access
        self._seen = -1

    async def read_state(self) -> ProjectState:
        """Return the state of the project, at least as new as the last known change.

        Raises RequestRejected if the client's token is no longer valid.
        """
        self._seen = self._feed.count
        await self._access.authenticate()
        followed = self._followed
        async with followed.lock:
            if followed.state is None or followed.count < self._seen:
                count = self._feed.count
                followed.state = await to_thread.run_sync(self._read)
                followed.count = count
            return followed.state

    async def wait_for_change(self) -> bool:
        """Wait for a change since the last read. Return False after `MAX_WAIT_SECONDS`."""
        return await self._feed.wait_for_change(self._seen) != self._seen

    def _read(self) -> ProjectState:
        with self._access.open_snapshot() as read:
            return ChangeViews(read.database, read.project_id).poll()
