"""Inbox rows as they are read by people: lists of them, and ids as they are typed. Never writes."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from cardbox_cli.model.execution.turns import ERROR, OPEN, InboxRow
from cardbox_cli.store.connection.project_store import Further, ProjectStore, paged
from cardbox_cli.store.connection.rows import all_decoded
from cardbox_cli.store.connection.short_ids import like_escape, the_one

_PAGE = 200
_COUNTED = 10_000


class InboxFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows a list holds; None means any."""

    agent_id: str | None = None
    status: str | None = None
    message_type: str | None = None


class InboxViews(ProjectStore):
    """The inbox rows of one project's agents."""

    def newest(self, where: InboxFilter | None = None, *, limit: int | None = None) -> Iterator[InboxRow]:
        """The rows that `where` allows, newest first, read in pages as they are asked for."""
        self.database.require("state.agent_inbox")
        return paged(partial(self._page, where or InboxFilter()), page=_PAGE, limit=limit)

    def further(self, where: InboxFilter, last: InboxRow) -> Further:
        """How many rows `newest` would give after `last`. Counts up to 10,000."""
        if last.created_at is None:
            return Further(0, False)
        found = self._value("count_further_inbox", **_query(where, last, _COUNTED + 1))
        return Further.counted(found, found, limit=_COUNTED)

    def resolve(self, typed: str) -> str:
        """The full id that `typed` stands for: an id, or a unique end or beginning of one.

        A beginning may lack its `inbox_` or `turn_`. Raises NotFound, or AmbiguousId with the candidates.
        """
        self.database.require("state.agent_inbox")
        if self._value("inbox_id_exists", typed=typed):
            return typed
        escaped = like_escape(typed)
        rows = self._rows("find_inbox_ids", beginning=f"{escaped}%", end=f"%{escaped}")
        return the_one("inbox row", typed, [inbox_id for (inbox_id,) in rows], self.project_id)

    def _page(self, where: InboxFilter, after: InboxRow | None, size: int) -> list[InboxRow]:
        return all_decoded(InboxRow, self._rows(_list(where), **_query(where, after, size)))


def _list(where: InboxFilter) -> str:
    """The query that an index of its own serves, where there is one."""
    if where.status == ERROR:
        return "list_dead_inbox"
    return "list_open_inbox" if where.status in OPEN else "list_inbox"


def _query(where: InboxFilter, after: InboxRow | None, limit: int) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(where),
        "after_time": after.created_at if after else None,
        "after_id": after.inbox_id if after else None,
        "limit": limit,
    }
