"""The inbox in Postgres: what agents must process, in which state, and who has claimed it until when.

A change of a row's state is one of `model/execution/turns.py`. Methods take part in the caller's
transaction, who holds the head of the agent first; a claim locks the heads itself.
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
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.queries import decoded

# So many rows more than are wanted are looked for, where any may be in somebody else's hands.
_SPARE = 100
_NO_ROW = "`cbx inbox list` shows them"


class NewRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row to be written. `payload` holds pointers and never content."""

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

    def written(self, project_id: str, now: datetime) -> InboxRow:
        """The row as it is stored at this time."""
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


def new_row(row: InboxRow, edge: Edge) -> dict[str, Any]:
    """Return the parameters of the fragments `new_row` and `edge_of_row`."""
    return {
        "inbox_id": row.inbox_id,
        "agent_id": row.agent_id,
        "channel_id": row.channel_id,
        "message_type": row.message_type,
        "enqueue_mode": row.enqueue_mode,
        "correlation_id": row.correlation_id,
        "agent_turn_id": row.agent_turn_id,
        "turn_epoch": row.turn_epoch,
        "context_headers": jsonb(row.context_headers),
        "payload": jsonb(row.payload),
        "status": row.status,
        "now": row.created_at,
        "edge_id": edge.edge_id,
        "primitive": edge.primitive,
        "edge_phase": edge.edge_phase,
        "source_agent_id": edge.source_agent_id,
        "source_agent_turn_id": edge.source_agent_turn_id,
        "source_step_id": edge.source_step_id,
        "depth": edge.recursion_depth,
        "edge_trace_id": edge.trace_id,
        "edge_parent_step_id": edge.parent_step_id,
        "metadata": jsonb(edge.metadata),
    }


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows are due or claimed, and the agents whose due rows nobody can claim: they have no head."""

    rows: int
    headless: list[str]


class InboxStore(ProjectStore):
    """The inbox rows of one project's agents, and their leases."""

    def insert(self, row: NewRow) -> InboxRow | None:
        """Write a row; None where its id, or its type and correlation id, are taken."""
        values = msgspec.structs.asdict(row)
        values["payload"], values["context_headers"] = jsonb(row.payload), jsonb(row.context_headers)
        stamped = self._row("insert_inbox", **values)
        if stamped is None:
            return None
        due_at, created_at = stamped
        return msgspec.structs.replace(row.written(self.project_id, created_at), next_retry_at=due_at)

    def get(self, inbox_id: str) -> InboxRow:
        """The row of this id. Raises NotFound."""
        row = self._one(InboxRow, "inbox_row", inbox_id=inbox_id)
        return self._found(row, "inbox row", inbox_id, _NO_ROW)

    def hold(self, inbox_id: str, *, may_report: bool = True) -> ClaimedSituation:
        """The row of this id with what decides on it, all held until the end of the transaction.

        `may_report` is False for one that is no report. Raises NotFound.
        """
        name = "claimed_situation" if may_report else "claimed_turn"
        stored = self._one(ClaimedSituation, name, inbox_id=inbox_id)
        found = self._found(stored, "inbox row", inbox_id, _NO_ROW)
        if found.lease is not None:
            return found
        # One that was made while we waited for the head.
        return msgspec.structs.replace(found, lease=self.lock_lease(inbox_id))

    def hold_report(self, inbox_id: str) -> ClaimedSituation:
        """`hold` for a report that is to be applied: with its results, as all is once the locks are had."""
        while True:
            row = self._row("claimed_report", inbox_id=inbox_id)
            stored = None if row is None else decoded(ClaimedSituation, row[0])
            found = self._found(stored, "inbox row", inbox_id, _NO_ROW)
            if row is not None and not found.is_old:
                return msgspec.structs.replace(found, results=[decode_card(card) for card in row[1]])

    def give_back(
        self,
        row: InboxRow,
        fence: Fence | None,
        move: str,
        *,
        attempts: int,
        delay: timedelta,
        error: str | None,
    ) -> InboxRow | None:
        """Make the move `defer` or `release` with a claimed row, whose lease is over; the row as it then is.

        The turn at `fence`, which it carries unless that is None, waits for another claim at its next epoch.
        None where the row is not claimed any more.
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
        """The row of this id, held until the end of the transaction."""
        return self._one(InboxRow, "lock_inbox_row", inbox_id=inbox_id)

    def by_correlation(self, message_type: str, correlation_id: str) -> InboxRow | None:
        """The row of this type that has this correlation id."""
        asked = {"message_type": message_type, "correlation_id": correlation_id}
        return self._one(InboxRow, "inbox_by_correlation", **asked)

    def of_turn(self, agent_turn_id: str) -> list[InboxRow]:
        """The rows of a turn, the oldest first."""
        return self._all(InboxRow, "inbox_of_turn", agent_turn_id=agent_turn_id)

    def turn_row(self, agent_turn_id: str) -> InboxRow | None:
        """The row that asks for a turn: the oldest one, where other programs wrote several."""
        return self._one(InboxRow, "turn_row", agent_turn_id=agent_turn_id)

    def open_of_agent(self, agent_id: str) -> list[InboxRow]:
        """What an agent still has before it, the oldest first."""
        return self._all(InboxRow, "open_inbox_of_agent", agent_id=agent_id)

    def queue_position(self, row: InboxRow) -> int:
        """The place of a queued row among those of its agent, from 1."""
        return int(self.database.value("queue_position", **msgspec.structs.asdict(row)))

    def count_queued(self, agent_id: str) -> int:
        """How many turns are queued for an agent."""
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
        """Make the move of this name with those of these rows that it may begin at; these, as they then are.

        `attempts` is added to the retry count; the next try is `delay` from now.
        """
        known = INBOX_MOVES[move]
        return self._all(
            InboxRow,
            "move_inbox",
            inbox_ids=list(inbox_ids),
            sources=list(known.sources),
            target=known.target,
            turn_epoch=turn_epoch,
            attempts=attempts,
            delay=delay,
            error=error,
        )

    def close(self, agent_turn_id: str) -> None:
        """Consume what is still due or claimed of a turn that has ended, and end its leases."""
        closed = self._column("close_inbox_of_turn", agent_turn_id=agent_turn_id)
        if closed and self.database.keeps_turns:
            self.drop_leases(closed)

    def point(self, agent_turn_id: str, *, context_box_id: str | None, output_box_id: str | None) -> None:
        """Replace the boxes that a turn's row points to; None keeps one."""
        boxes = {"context_box_id": context_box_id, "output_box_id": output_box_id}
        pointers = {name: box_id for name, box_id in boxes.items() if box_id is not None}
        self._run("point_inbox", agent_turn_id=agent_turn_id, pointers=jsonb(pointers))

    def point_report(self, inbox_id: str, payload: dict[str, Any]) -> InboxRow | None:
        """Lead a report to another result, due at once; None where it cannot be claimed."""
        now = self.database.now()
        return self._one(InboxRow, "point_report", inbox_id=inbox_id, payload=jsonb(payload), now=now)

    def idle_with_queued(self) -> list[str]:
        """The agents that are idle though a turn is queued for them."""
        return self._column("idle_agents_with_queued")

    def unclaimed(self, age: timedelta) -> list[InboxRow]:
        """The oldest row of each worker target that is due for so long."""
        return self._all(InboxRow, "unclaimed_since", age=age)

    def claim(
        self, *, target: str | None, owner: str, limit: int, lease: timedelta
    ) -> list[tuple[InboxRow, Lease]]:
        """Claim up to `limit` due rows, one of each agent that serves under `target` (None: under any)."""
        if not self.database.sharded:
            taken = self._take("claim_due", "claim_due_by_agent", target, limit, owner=owner, delay=lease)
            return [(row, _new_lease(row, owner, lease)) for row in taken]
        with self.database.transaction(savepoint=False):
            taken = self._take("take_due", "take_due_by_agent", target, limit)
            self._lease(taken, owner, lease)
        return [(row, _new_lease(row, owner, lease)) for row in taken]

    def _take(
        self, due: str, by_agent: str, target: str | None, limit: int, **leasing: Any
    ) -> list[InboxRow]:
        """What these two queries take, the second of what the first did not look at."""
        taken = self._all(InboxRow, due, target=target, limit=limit, **leasing)
        if len(taken) < limit and self._value("more_due"):
            served, left = [row.agent_id for row in taken], limit - len(taken)
            # Some may be of agents whose heads others hold.
            asked = {"target": target, "served": served, "now": self.database.now()}
            found = self._column("due_by_agent", **asked, limit=left + _SPARE)
            taken += self._all(InboxRow, by_agent, inbox_ids=found, limit=left, **leasing)
        return taken

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
        """Consume those of these rows that `owner` has claimed; their ids."""
        return self._column("consume_claimed", inbox_ids=list(inbox_ids), owner=owner)

    def unfinished(self, target: str) -> Unfinished:
        """What of this target is due or claimed."""
        rows, headless = self._row("unfinished", target=target) or (0, None)
        return Unfinished(rows=rows, headless=headless or [])

    def lease(self, inbox_id: str) -> Lease | None:
        """Who has claimed this row."""
        return self._one(Lease, "lease", inbox_id=inbox_id)

    def lock_lease(self, inbox_id: str) -> Lease | None:
        """Who has claimed this row, held until the end of the transaction."""
        return self._one(Lease, "lock_lease", inbox_id=inbox_id)

    def leases_of_turn(self, agent_id: str, agent_turn_id: str) -> list[Lease]:
        """The leases of a turn's rows."""
        return self._all(Lease, "leases_of_turn", agent_id=agent_id, agent_turn_id=agent_turn_id)

    def carry(self, inbox_id: str, turn_epoch: int) -> InboxRow:
        """The row, which is held, carries its turn on at a new epoch; the row as it then is."""
        return decoded(InboxRow, self._value("carry_turn", inbox_id=inbox_id, turn_epoch=turn_epoch))

    def drop_leases(self, inbox_ids: Sequence[str]) -> None:
        """End the leases of these rows, whoever has them."""
        self._run("drop_leases", inbox_ids=list(inbox_ids))

    def hold_agents(self, inbox_ids: Sequence[str], *, owner: str) -> None:
        """Lock the heads of the agents whose rows these are, those that this owner has claimed."""
        self._rows("lock_heads_of_leases", inbox_ids=list(inbox_ids), owner=owner)

    def extend(self, inbox_ids: Sequence[str], *, owner: str, lease: timedelta) -> dict[str, int]:
        """Extend the leases of this owner, after `hold_agents`; the epoch of each that he still has."""
        return dict(self._rows("extend_leases", inbox_ids=list(inbox_ids), owner=owner, delay=lease))

    def expired(self, *, limit: int) -> list[Lease]:
        """Leases whose time is over, or whose row is not claimed any more."""
        return self._all(Lease, "expired_leases", limit=limit)


def _new_lease(row: InboxRow, owner: str, lease: timedelta) -> Lease:
    """The lease that the claim of this row made, at the moment that stamps the row."""
    assert row.processed_at is not None
    return Lease(
        inbox_id=row.inbox_id,
        agent_id=row.agent_id,
        agent_turn_id=row.agent_turn_id,
        turn_epoch=row.turn_epoch,
        owner=owner,
        claimed_at=row.processed_at,
        heartbeat_at=row.processed_at,
        expires_at=row.processed_at + lease,
    )
