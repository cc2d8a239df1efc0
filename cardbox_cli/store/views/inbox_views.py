"""Lists of inbox rows, full ids for short ones, and calls that may wait forever. Never writes."""

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from cardbox_cli.model.execution.turns import ERROR, OPEN, SKIPPED, InboxRow
from cardbox_cli.store.connection.project_store import (
    FurtherCount,
    PageFilter,
    ProjectStore,
    like_escape,
    require_single,
)


class InboxFilter(PageFilter, frozen=True, kw_only=True):
    """Filter of a list of rows. A field that is None matches any value."""

    agent_id: str | None = None
    status: str | None = None
    message_type: str | None = None


class InboxViews(ProjectStore):
    def newest(self, where: InboxFilter | None = None, *, limit: int | None = None) -> Iterator[InboxRow]:
        """Yield the rows that match `where`, newest first, reading page by page."""
        self._require("state.agent_inbox")
        where = where or InboxFilter()
        query = _LISTS.get(where.status or "", "list_inbox")
        return self._list(InboxRow, query, where, limit, key="inbox_id")

    def further(self, where: InboxFilter, last: InboxRow) -> FurtherCount:
        return self._further("count_further_inbox", where, last, key="inbox_id")

    def resolve(self, wanted: str) -> str:
        """Return the full id for an id, or for a unique part of one. Raises NotFound, AmbiguousId."""
        self._require("state.agent_inbox")
        if self._value("inbox_id_exists", wanted=wanted):
            return wanted
        escaped = like_escape(wanted)
        candidates = self._column("find_inbox_ids", beginning=f"{escaped}%", end=f"%{escaped}")
        return require_single("inbox row", wanted, candidates, self.project_id)


# Queries for statuses that few rows have. Each has its own index.
_LISTS = {**dict.fromkeys(OPEN, "list_open_inbox"), ERROR: "list_dead_inbox", SKIPPED: "list_skipped_inbox"}


class LostReport(msgspec.Struct, frozen=True):
    """A call that may wait forever. Its result is the card `card_id`, or the end of `child_turn_id`."""

    agent_id: str
    agent_turn_id: str
    tool_call_id: str
    card_id: str | None
    child_turn_id: str | None


class LostReportStore(ProjectStore):
    """Calls of suspended turns in one project that wait although their results exist."""

    def find(self, agent_turn_id: str | None, *, age: timedelta) -> list[LostReport]:
        """Return calls that may wait forever, of this suspended turn, or of any if it is None.

        The result of such a call has been stored for `age`, or no agent runs the turn that should answer it.
        """
        return [LostReport(*row) for row in self._rows("lost_reports", agent_turn_id=agent_turn_id, age=age)]
