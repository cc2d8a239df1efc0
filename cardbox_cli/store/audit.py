"""The audit in Postgres: changes to turns from outside their runs, and people's changes to stored data.

Rows are only added. If the database has the trigger, it refuses updates and deletes. Each row is written in
the transaction of its change. Without an audit table, nothing is written. The caller names the actor.
"""

from collections.abc import Collection, Iterator
from typing import Any

from cardbox_cli.model.execution.turns import AuditEntry, Fence, Successor, new_id
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import DateFilter, FurtherCount, ProjectStore

_TABLE = "cbx.audit"


class AuditFilter(DateFilter, frozen=True, kw_only=True):
    """Filter of a list of audit rows. A field that is None matches any value."""

    agent_id: str | None = None
    agent_turn_id: str | None = None
    action: str | None = None


class AuditStore(ProjectStore):
    def write(self, action: str, *, actor: str, detail: dict[str, Any]) -> None:
        self._insert(agent_id="", action=action, actor=actor, detail=detail)

    def write_of_turn(
        self,
        fence: Fence,
        *,
        action: str,
        actor: str,
        reason: str | None,
        epoch_after: int | None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Record a change to the turn that `fence` identifies, or to its agent if it names no turn."""
        self._insert(
            agent_id=fence.agent_id,
            agent_turn_id=fence.agent_turn_id or None,
            action=action,
            actor=actor,
            reason=reason,
            epoch_before=fence.turn_epoch,
            epoch_after=epoch_after,
            detail=detail or {},
        )

    def _insert(self, *, detail: dict[str, Any], **columns: str | int | None) -> None:
        empty = dict.fromkeys(("agent_turn_id", "reason", "epoch_before", "epoch_after"))
        row = {**empty, **columns, "audit_id": new_id("audit"), "detail": jsonb(detail)}
        # A role may have the right to write the table but not to read it. Such a table is in `closed_tables`.
        if _TABLE in self.database.tables or _TABLE in self.database.closed_tables:
            self._run("write_audit", **row)

    def list_by_turn(self, agent_turn_id: str) -> list[AuditEntry]:
        """Return the changes to a turn from outside its run, oldest first."""
        if not self.database.keeps_turns:
            return []
        return self._all(AuditEntry, "audit_of_turn", agent_turn_id=agent_turn_id)

    def record_successor(self, fence: Fence, new_turn_id: str, *, action: str, actor: str) -> None:
        """Record that a new turn repeats a turn: by the action `retry` or `replay`."""
        detail = {"new_turn_id": new_turn_id}
        self.write_of_turn(fence, action=action, actor=actor, reason=None, epoch_after=None, detail=detail)

    def successors(self, turn_ids: Collection[str]) -> dict[str, list[Successor]]:
        """Return by turn the turns that repeat it, and those that repeat these, oldest first."""
        found: dict[str, list[Successor]] = {}
        if turn_ids and self.database.keeps_turns:
            for turn_id, *columns in self._rows("successors_of_turns", turn_ids=list(turn_ids)):
                found.setdefault(turn_id, []).append(Successor(*columns))
        return found

    def newest(self, where: AuditFilter | None = None, *, limit: int | None = None) -> Iterator[AuditEntry]:
        """Yield the rows that match `where`, newest first, reading page by page."""
        self._require(_TABLE)
        return self._list(AuditEntry, "list_audit", where or AuditFilter(), limit, key="audit_id")

    def further(self, where: AuditFilter, last: AuditEntry) -> FurtherCount:
        return self._further("count_further_audit", where, last, key="audit_id")
