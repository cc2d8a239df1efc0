"""The inbox in Postgres: work for agents, its states, and the leases of its claims.

A change of a row's state is a move of `INBOX_MOVES`. Methods run in the caller's transaction, which has
locked the head of the agent first. Only a claim locks the heads itself.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from cardbox_cli.model.cards import decode_card
from cardbox_cli.model.execution.situations import ClaimedSituation
from cardbox_cli.model.execution.turns import (
    DEFAULT_CHANNEL,
    DEFERRED,
    HEAD_MOVES,
    INBOX_MOVES,
    Edge,
    Fence,
    InboxRow,
    Lease,
)
from cardbox_cli.process_identity import is_dead
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.queries import decode_row

# Number of extra candidates, because other transactions may have locked the heads of some.
_SPARE_ROWS = 100
_NO_ROW = "`cbx inbox list` shows the newest rows"


class NewRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row to insert. `payload` has pointers, never content."""

    inbox_id: str
    agent_id: str
    message_type: str
    status: str
    payload: dict[str, Any]
    context_headers: dict[str, str]
    channel_id: str = DEFAULT_CHANNEL
    enqueue_mode: str | None = None
    correlation_id: str | None = None
    agent_turn_id: str | None = None
    turn_epoch: int = 0

    def build_row(self, project_id: str, now: datetime) -> InboxRow:
        """Return the row as it is stored at the time `now`."""
        return InboxRow(
            **msgspec.structs.asdict(self),
            project_id=project_id,
            retry_count=0,
            next_retry_at=now,
            last_error=None,
            defer_reason=None,
            processed_at=None,
            archived_at=None,
            created_at=now,
        )


def row_parameters(row: InboxRow, edge: Edge) -> dict[str, Any]:
    """Return the parameters of the fragments `new_row` and `edge_of_row`."""
    return {
        **msgspec.structs.asdict(edge),
        **msgspec.structs.asdict(row),
        "context_headers": jsonb(row.context_headers),
        "payload": jsonb(row.payload),
        "now": row.created_at,
        "depth": edge.recursion_depth,
        "edge_trace_id": edge.trace_id,
        "edge_parent_step_id": edge.parent_step_id,
        "metadata": jsonb(edge.metadata),
    }


class UnfinishedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Number of due and claimed rows, and the `headless` agents, whose due rows cannot be claimed."""

    rows: int
    headless: list[str]


class InboxStore(ProjectStore):
    def insert(self, row: NewRow) -> InboxRow | None:
        """Insert a row. Returns None if its id is taken, or its correlation id for this type."""
        values = msgspec.structs.asdict(row)
        values["payload"], values["context_headers"] = jsonb(row.payload), jsonb(row.context_headers)
        stamped = self._row("insert_inbox", **values)
        if stamped is None:
            return None
        due_at, created_at = stamped
        return msgspec.structs.replace(row.build_row(self.project_id, created_at), next_retry_at=due_at)

    def get(self, inbox_id: str) -> InboxRow:
        """Return the row with this id. Raises NotFound."""
        row = self._one(InboxRow, "inbox_row", inbox_id=inbox_id)
        return self._require_item(row, "inbox row", inbox_id, _NO_ROW)

    def hold(self, inbox_id: str, *, may_report: bool = True) -> ClaimedSituation:
        """Return a row and the facts that decide on it. Locks its agent's head, its lease and the row.

        With `may_report` False, does not read the calls that a report answers. Raises NotFound.
        """
        name = "claimed_situation" if may_report else "claimed_turn"
        stored = self._one(ClaimedSituation, name, inbox_id=inbox_id)
        situation = self._require_item(stored, "inbox row", inbox_id, _NO_ROW)
        if situation.lease is not None:
            return situation
        # The lease may have been created while we waited for the head.
        return msgspec.structs.replace(situation, lease=self.lock_lease(inbox_id))

    def hold_report(self, inbox_id: str) -> ClaimedSituation:
        """Lock a report as `hold` does. Also returns the results that it needs, as of the lock's time."""
        while True:
            row = self._row("claimed_report", inbox_id=inbox_id)
            stored = None if row is None else decode_row(ClaimedSituation, row[0])
            situation = self._require_item(stored, "inbox row", inbox_id, _NO_ROW)
            if row is not None and not situation.is_old:
                return msgspec.structs.replace(situation, results=[decode_card(card) for card in row[1]])

    def return_to_inbox(
        self,
        row: InboxRow,
        fence: Fence | None,
        move: str,
        *,
        attempts: int,
        delay: timedelta,
        error: str | None,
    ) -> InboxRow | None:
        """Make the move `defer` or `release` with a claimed row, and end its lease. Returns the new row.

        `fence` identifies the turn that the row carries, or is None if it carries none. The turn then waits
        for another claim, at its next epoch. Returns None if the turn or the row has changed.
        """
        reclaim, known = HEAD_MOVES["reclaim"], INBOX_MOVES[move]
        at = Fence(row.agent_id, row.turn_id, row.turn_epoch) if fence is None else fence
        return self._one(
            InboxRow,
            "give_back",
            **msgspec.structs.asdict(at),
            carries=fence is not None,
            sources=[] if fence is None else list(reclaim.sources),
            target=reclaim.target,
            epoch=reclaim.epoch,
            inbox_id=row.inbox_id,
            row_sources=list(known.sources),
            row_target=known.target,
            is_deferred=known.target == DEFERRED,
            attempts=attempts,
            delay=delay,
            error=error,
        )

    def lock(self, inbox_id: str) -> InboxRow | None:
        return self._one(InboxRow, "lock_inbox_row", inbox_id=inbox_id)

    def find_by_correlation(self, message_type: str, correlation_id: str) -> InboxRow | None:
        key = {"message_type": message_type, "correlation_id": correlation_id}
        return self._one(InboxRow, "inbox_by_correlation", **key)

    def list_by_turn(self, agent_turn_id: str) -> list[InboxRow]:
        """Return the rows of a turn, oldest first."""
        return self._all(InboxRow, "inbox_of_turn", agent_turn_id=agent_turn_id)

    def turn_row(self, agent_turn_id: str) -> InboxRow | None:
        """Return the row that dispatched a turn, or the oldest one if another program wrote several."""
        return self._one(InboxRow, "turn_row", agent_turn_id=agent_turn_id)

    def open_rows(self, agent_id: str) -> list[InboxRow]:
        """Return the open rows of an agent, oldest first."""
        return self._all(InboxRow, "open_inbox_of_agent", agent_id=agent_id)

    def queue_position(self, row: InboxRow) -> int:
        return int(self._value("queue_position", **msgspec.structs.asdict(row)))

    def count_queued(self, agent_id: str) -> int:
        return int(self._value("count_queued", agent_id=agent_id))

    def move(
        self,
        inbox_ids: Sequence[str],
        move: str,
        *,
        turn_epoch: int | None = None,
        attempts: int = 0,
        delay: timedelta | None = None,
        error: str | None = None,
    ) -> list[InboxRow]:
        """Make the named move with the rows whose state allows it. Returns these rows.

        Adds `attempts` to the retry count. The next attempt is `delay` from now, or unchanged if None.
        """
        known = INBOX_MOVES[move]
        change = {"sources": list(known.sources), "target": known.target, "turn_epoch": turn_epoch}
        retry = {"attempts": attempts, "delay": delay, "error": error}
        return self._all(InboxRow, "move_inbox", inbox_ids=list(inbox_ids), **change, **retry)

    def close(self, agent_turn_id: str) -> None:
        """Consume the due and claimed rows of a turn that has ended, and end their leases."""
        closed = self._column("close_inbox_of_turn", agent_turn_id=agent_turn_id)
        if closed and self.database.keeps_turns:
            self.drop_leases(closed)

    def set_boxes(self, agent_turn_id: str, *, context_box_id: str | None, output_box_id: str | None) -> None:
        """Replace the boxes in the payload of a turn's row. None leaves a box unchanged."""
        boxes = {"context_box_id": context_box_id, "output_box_id": output_box_id}
        pointers = {name: box_id for name, box_id in boxes.items() if box_id is not None}
        self._run("point_inbox", agent_turn_id=agent_turn_id, pointers=jsonb(pointers))

    def point_report(self, inbox_id: str, payload: dict[str, Any]) -> InboxRow | None:
        """Point a report to another result, and make it due at once. Returns None if it is not claimable."""
        now = self.database.now()
        return self._one(InboxRow, "point_report", inbox_id=inbox_id, payload=jsonb(payload), now=now)

    def idle_with_queued(self) -> list[str]:
        return self._column("idle_agents_with_queued")

    def unclaimed(self, age: timedelta) -> list[InboxRow]:
        """Return, for each worker target, the oldest row that has been due for at least `age`."""
        return self._all(InboxRow, "unclaimed_since", age=age)

    def claim(
        self, *, target: str | None, owner: str, limit: int, lease: timedelta
    ) -> list[tuple[InboxRow, Lease]]:
        """Claim up to `limit` due rows of the agents of `target`, or of all if None. Claims one per agent."""
        if self.database.sharded:
            with self.database.transaction(savepoint=False):
                rows = self._take("take_due", "take_due_by_agent", target, limit)
                self._lease(rows, owner, lease)
        else:
            rows = self._take("claim_due", "claim_due_by_agent", target, limit, owner=owner, delay=lease)
        return [(row, _new_lease(row, owner, lease)) for row in rows]

    def _take(
        self, due: str, by_agent: str, target: str | None, limit: int, **leasing: Any
    ) -> list[InboxRow]:
        """Claim rows by the query `due`. If it did not examine all due rows, also by `by_agent`."""
        rows = self._all(InboxRow, due, target=target, limit=limit, **leasing)
        if len(rows) < limit and self._value("more_due"):
            served, left = [row.agent_id for row in rows], limit - len(rows)
            # Other transactions may have locked the heads of some of these agents.
            candidates = {"target": target, "served": served, "now": self.database.now()}
            inbox_ids = self._column("due_by_agent", **candidates, limit=left + _SPARE_ROWS)
            rows += self._all(InboxRow, by_agent, inbox_ids=inbox_ids, limit=left, **leasing)
        return rows

    def _lease(self, rows: Sequence[InboxRow], owner: str, lease: timedelta) -> None:
        if rows:
            self._run(
                "insert_leases",
                inbox_ids=[row.inbox_id for row in rows],
                agent_ids=[row.agent_id for row in rows],
                agent_turn_ids=[row.agent_turn_id for row in rows],
                turn_epochs=[row.turn_epoch for row in rows],
                owner=owner,
                delay=lease,
            )

    def consume(self, inbox_ids: Sequence[str], *, owner: str) -> list[str]:
        """Consume the rows among these that `owner` has claimed. Returns their ids."""
        return self._column("consume_claimed", inbox_ids=list(inbox_ids), owner=owner)

    def unfinished(self, target: str) -> UnfinishedRows:
        rows, headless = self._row("unfinished", target=target) or (0, None)
        return UnfinishedRows(rows=rows, headless=headless or [])

    def lease(self, inbox_id: str) -> Lease | None:
        return self._one(Lease, "lease", inbox_id=inbox_id)

    def lock_lease(self, inbox_id: str) -> Lease | None:
        return self._one(Lease, "lock_lease", inbox_id=inbox_id)

    def leases_of_turn(self, agent_id: str, agent_turn_id: str) -> list[Lease]:
        return self._all(Lease, "leases_of_turn", agent_id=agent_id, agent_turn_id=agent_turn_id)

    def set_turn_epoch(self, inbox_id: str, turn_epoch: int) -> InboxRow:
        """Set the new epoch of a turn in its locked row and its lease. Returns the new row."""
        return decode_row(InboxRow, self._value("carry_turn", inbox_id=inbox_id, turn_epoch=turn_epoch))

    def drop_leases(self, inbox_ids: Sequence[str]) -> None:
        """End the leases of these rows, regardless of their owners."""
        self._run("drop_leases", inbox_ids=list(inbox_ids))

    def extend(self, inbox_ids: Sequence[str], *, owner: str, lease: timedelta) -> dict[str, int]:
        """Extend the leases that `owner` still has, except locked ones. Returns their epochs by row."""
        return dict(self._rows("extend_leases", inbox_ids=list(inbox_ids), owner=owner, delay=lease))

    def expire_leases_of_dead(self) -> None:
        """End the leases of owners whose process has ended on this machine."""
        dead = [owner for owner in self._column("lease_owners") if is_dead(owner)]
        if dead:
            self._run("expire_leases", owners=dead)

    def expired(self, *, limit: int) -> list[Lease]:
        """Return leases that have expired or whose row is no longer claimed, in the order of their expiry."""
        return self._all(Lease, "expired_leases", limit=limit, started_at=self.database.started_at)


def _new_lease(row: InboxRow, owner: str, lease: timedelta) -> Lease:
    """Return the lease that the claim of this row created, at the time of the claim."""
    now = row.processed_at
    assert now is not None
    return Lease(
        inbox_id=row.inbox_id,
        agent_id=row.agent_id,
        agent_turn_id=row.agent_turn_id,
        turn_epoch=row.turn_epoch,
        owner=owner,
        claimed_at=now,
        heartbeat_at=now,
        expires_at=now + lease,
    )
