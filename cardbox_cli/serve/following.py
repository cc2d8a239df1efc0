"""Projects that are followed: each is looked at when something may have changed, once for all who follow it.

That is when Postgres notifies workers, where a connection can listen for it, and else after a pause: not
every change is notified of, and other programs write, too. Belongs to one event loop.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic

import anyio
from anyio import to_thread

from cardbox_cli.execution.notifications.service import PostgresSubscription
from cardbox_cli.serve.http.reading import Asker
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.views.recent_changes import ChangeViews, Standing

_LOG = logging.getLogger("cbx.serve")

SILENT = 15.0
"""Seconds after which a wait ends by itself."""
# Seconds that pass from a notification to the look: many come at once.
_CALM = 0.1


class _Followed:
    def __init__(self) -> None:
        self.followers = 0
        self.lock = anyio.Lock()
        self.count = -1
        self.standing: Standing | None = None


class Following:
    """Looks for all who follow. `pause`: seconds between two looks where nothing is notified."""

    def __init__(self, target: Target, *, pause: float) -> None:
        """`target` is where to listen."""
        self._target = target
        self._pause = pause
        self._projects: dict[str, _Followed] = {}
        self._subscription: PostgresSubscription | None = None
        # How often something may have changed, and when that was so last.
        self._count = 0
        self._at = 0.0
        self._change = anyio.Event()
        self.is_over = False

    @asynccontextmanager
    async def follow(self, asker: Asker) -> AsyncIterator["Follower"]:
        """Look at a project again and again."""
        self._listen()
        followed = self._projects.setdefault(asker.project_id, _Followed())
        followed.followers += 1
        try:
            yield Follower(self, followed, asker)
        finally:
            followed.followers -= 1
            if not followed.followers:
                del self._projects[asker.project_id]

    def end(self) -> None:
        """Let nobody wait any longer: the server ends, and whoever follows shall leave."""
        self.is_over = True
        self._change.set()

    def close(self) -> None:
        """Listen no longer."""
        if self._subscription is not None:
            self._subscription.close()

    async def changed(self, seen: int) -> int:
        """Wait until something may have changed since `seen`; the count.

        At most for `SILENT` seconds, and not once all is over.
        """
        until = monotonic() + SILENT
        while self._count == seen and not self.is_over and (now := monotonic()) < until:
            due = self._at + self._pause
            if now >= due:
                self._may_have_changed()
                break
            # Timers may ring a bit early.
            with anyio.move_on_after(min(due, until) - now):
                await self._change.wait()
                await anyio.sleep(_CALM)
        return self._count

    @property
    def count(self) -> int:
        """How often something may have changed."""
        return self._count

    def _listen(self) -> None:
        if not self._projects:
            self._at = monotonic()
        if self._subscription is None:
            loop = asyncio.get_running_loop()

            def tell() -> None:
                # The loop may have ended meanwhile.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._may_have_changed)

            self._subscription = PostgresSubscription(self._target, None, None, tell, _LOG.debug)

    def _may_have_changed(self) -> None:
        self._count += 1
        self._at = monotonic()
        self._change.set()
        self._change = anyio.Event()


class Follower:
    """One who follows a project."""

    def __init__(self, following: Following, followed: _Followed, asker: Asker) -> None:
        self._following = following
        self._followed = followed
        self._asker = asker
        self._seen = -1

    async def look(self) -> Standing:
        """How the project stands, by a look that is no older than what is known to have changed.

        Raises Refused once the asker may not look any more.
        """
        self._seen = self._following.count
        await self._asker.admitted()
        followed = self._followed
        async with followed.lock:
            if followed.standing is None or followed.count < self._seen:
                count = self._following.count
                followed.standing = await to_thread.run_sync(self._read)
                followed.count = count
            return followed.standing

    async def changed(self) -> bool:
        """Wait until something may have changed since the last look; False after `SILENT` seconds without."""
        return await self._following.changed(self._seen) != self._seen

    def _read(self) -> Standing:
        with self._asker.look() as read:
            return ChangeViews(read.database, read.project_id).look()
