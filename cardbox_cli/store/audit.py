"""The audit in Postgres: what was done to turns from outside their runs, and by people to what is stored.

Rows are only ever added: a trigger refuses the rest, where the database has it. A row belongs to the
transaction of what it tells of; where the database has no table for it nothing is written. Who acts is for
the caller to say.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.model.execution.turns import AuditEntry, Fence, new_id
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import Dated, Further, ProjectStore, paged, place

_TABLE = "cbx.audit"


class AuditFilter(Dated, frozen=True, kw_only=True):
    """Which rows a list holds; None means any."""

    agent_id: str | None = None
    agent_turn_id: str | None = None
    action: str | None = None


class AuditStore(ProjectStore):
    """What was done in one project."""

    @property
    def _is_kept(self) -> bool:
        """Whether there is a table for it, if only for others to read."""
        return _TABLE in self.database.tables or _TABLE in self.database.closed_tables

    def write(self, action: str, *, actor: str, detail: dict[str, Any]) -> None:
        """Write down what was done to no turn in particular."""
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
        """Write down what was done to a turn that was at `fence`; without a turn, to its agent."""
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
        if self._is_kept:
            self._run("write_audit", **row)

    def of_turn(self, agent_turn_id: str) -> list[AuditEntry]:
        """What was done to a turn from outside its run, in order."""
        if not self.database.keeps_turns:
            return []
        return self._all(AuditEntry, "audit_of_turn", agent_turn_id=agent_turn_id)

    def newest(self, where: AuditFilter | None = None, *, limit: int | None = None) -> Iterator[AuditEntry]:
        """The rows that `where` allows, newest first, read in pages as they are asked for."""
        self._require(_TABLE)
        return paged(partial(self._page, self._dated(where or AuditFilter())), limit=limit)

    def further(self, where: AuditFilter, last: AuditEntry) -> Further:
        """How many rows `newest` would give after `last`. Counts up to 10,000."""
        return self._further("count_further_audit", **place(self._dated(where), last, 0, key="audit_id"))

    def _page(self, where: AuditFilter, after: AuditEntry | None, size: int) -> list[AuditEntry]:
        return self._all(AuditEntry, "list_audit", **place(where, after, size, key="audit_id"))
