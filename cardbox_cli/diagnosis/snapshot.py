"""What is known of one turn at one moment, as the rules of a diagnosis see it. Pure: nothing is read here.

Owns the questions that several rules ask of the rows, such as which row carries the turn. Judges nothing.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cached_property

import msgspec

from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.execution.queue.messages import is_report, is_turn
from cardbox_cli.model.execution.diagnosis import AwaitedCall, BoxFacts, Child, Lock, ResultCard, Sharer
from cardbox_cli.model.execution.turns import (
    CONSUMED,
    DISPATCHED,
    DUE,
    IDLE,
    OPEN,
    PROCESSING,
    QUEUED,
    RUNNING,
    SKIPPED,
    SUSPENDED,
    WAITING,
    AuditEntry,
    Edge,
    Head,
    InboxRow,
    Lease,
    Step,
    TurnRecord,
    WaitingTool,
    WorkerEntry,
    last_is_over,
)
from cardbox_cli.settings import FOREIGN_SILENCE, Settings


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The facts of one turn. `keeps_turns`: whether leases, workers and records are known here at all.

    `queue_length`: how many turns are queued for the turn's agent; `blocker` is what is known of the turn
    that the agent is at, where it is another one. `arguments` are the beginnings of what the calls of
    `waiting` were made with, as JSON, where their cards are there. `loads`: how many live leases each worker
    has. `refused` are the errors that the lint finds in what the turn asks its model next, or asked last
    before it failed, where that was looked at. `locks` is None where they were not looked up.
    """

    agent_turn_id: str
    agent_id: str
    now: datetime
    settings: Settings
    keeps_turns: bool
    head: Head | None = None
    rows: tuple[InboxRow, ...] = ()
    queue_length: int = 0
    steps: tuple[Step, ...] = ()
    waiting: tuple[WaitingTool, ...] = ()
    arguments: dict[str, str] = {}
    requests: tuple[Edge, ...] = ()
    record: TurnRecord | None = None
    audit: AuditEntry | None = None
    leases: tuple[Lease, ...] = ()
    worker_target: str | None = None
    workers: tuple[WorkerEntry, ...] = ()
    loads: dict[str, int] = {}
    boxes: tuple[BoxFacts, ...] = ()
    results: tuple[ResultCard, ...] = ()
    children: tuple[Child, ...] = ()
    call: AwaitedCall | None = None
    sharers: tuple[Sharer, ...] = ()
    refused: tuple[LintFinding, ...] = ()
    blocker: "Snapshot | None" = None
    locks: tuple[Lock, ...] | None = None

    # --- where the turn stands

    @cached_property
    def turn_row(self) -> InboxRow | None:
        """The row that asked for the turn."""
        return next((row for row in self.rows if is_turn(row)), None)

    @cached_property
    def at_head(self) -> str | None:
        """The head's status if the agent is at this turn, else None."""
        head = self.head
        if head is None or head.active_agent_turn_id != self.agent_turn_id or head.status == IDLE:
            return None
        return head.status

    @property
    def dispatched(self) -> bool:
        """Promoted, and not entered by a worker."""
        return self.at_head == DISPATCHED

    @property
    def running(self) -> bool:
        """Entered by a worker."""
        return self.at_head == RUNNING

    @property
    def suspended(self) -> bool:
        """Waiting for tools."""
        return self.at_head == SUSPENDED

    @property
    def queued(self) -> bool:
        """Not promoted yet."""
        return self.at_head is None and self.turn_row is not None and self.turn_row.status == QUEUED

    @cached_property
    def epoch(self) -> int:
        """The epoch that a fix must expect."""
        return 0 if self.head is None else self.head.turn_epoch

    @cached_property
    def ended(self) -> bool:
        """Whether the turn is over: recorded so, or, for another system's, finished by all its rows.

        Doubts more than the `ended` of a list of turns, which takes a row that is done or dead at its word.
        """
        if self.at_head is not None:
            return False
        if self.record is not None and self.record.end_status is not None:
            return True
        finished = last_is_over(self.steps)
        still = {row.status for row in self.rows if is_turn(row) and row.status in OPEN}
        if still:
            # Other systems end a turn first, and its claimed row later.
            return self.record is None and finished and QUEUED not in still
        if self.turn_row is None:
            # Rows of finished turns may have been cleaned up; their steps stay.
            return finished
        if self.turn_row.status == CONSUMED:
            # Where cbx keeps an end, only another system's worker ends a turn without it.
            return self.record is None or finished
        return self.turn_row.status == SKIPPED

    # --- who works on it

    @cached_property
    def promoted(self) -> tuple[InboxRow, ...]:
        """The open rows that are out of the queue."""
        return tuple(row for row in self.rows if row.status in (*DUE, PROCESSING))

    @cached_property
    def carrier(self) -> InboxRow | None:
        """The open row that carries the turn: the one that asked for it, else the report that resumed it."""
        return next(self._carriers(), None)

    def _carriers(self) -> Iterator[InboxRow]:
        yield from (row for row in self.promoted if is_turn(row))
        if self.dispatched or self.running:
            reports = [row for row in self.promoted if is_report(row)]
            at_epoch = [row for row in reports if row.turn_epoch == self.epoch]
            yield from sorted(at_epoch, key=lambda row: row.status != PROCESSING)
            # Other systems leave a report that resumed its turn at the epoch before.
            yield from (row for row in reports if row.status == PROCESSING)

    @cached_property
    def open_reports(self) -> tuple[InboxRow, ...]:
        """Reports that have arrived and are not done with."""
        return tuple(row for row in self.rows if is_report(row) and row.status in OPEN)

    @cached_property
    def due_rows(self) -> tuple[InboxRow, ...]:
        """The rows of an active turn that a worker could claim now."""
        if self.at_head is None:
            return ()
        return tuple(row for row in self.rows if row.status in DUE and row.next_retry_at <= self.now)

    @cached_property
    def unclaimed(self) -> tuple[InboxRow, ...]:
        """Those of the due rows that nobody has claimed for too long."""
        patience = self.settings.unclaimed_time
        return tuple(row for row in self.due_rows if self.age(self.due_since(row)) > patience)

    def lease_of(self, row: InboxRow | None) -> Lease | None:
        """Who has claimed this row, as far as cbx knows."""
        return next((lease for lease in self.leases if row and lease.inbox_id == row.inbox_id), None)

    def lives(self, lease: Lease | None) -> bool:
        """Whether a lease is there and not over."""
        return lease is not None and lease.expires_at > self.now

    @cached_property
    def worked_on(self) -> bool:
        """Whether a live lease carries the turn."""
        return self.lives(self.lease_of(self.carrier))

    @cached_property
    def live_workers(self) -> tuple[WorkerEntry, ...]:
        """Workers of the agent's target that are alive."""
        return tuple(worker for worker in self.workers if worker.live)

    @property
    def unserved(self) -> bool:
        """Whether no worker can come: the agent has no target, or nobody alive serves it."""
        return self.worker_target is None or (self.keeps_turns and not self.live_workers)

    @cached_property
    def workers_are_busy(self) -> bool:
        """Whether every live worker of the agent's target has as many rows as it takes."""
        return bool(self.live_workers) and all(
            self.loads.get(worker.worker_id, 0) >= worker.concurrency for worker in self.live_workers
        )

    # --- since when

    def age(self, moment: datetime | None) -> timedelta:
        """How long ago; no time at all where nobody knows."""
        return self.now - moment if moment is not None else timedelta()

    def due_since(self, row: InboxRow) -> datetime:
        """Since when this row could have been claimed."""
        promoted = self.head.updated_at if self.head is not None and is_turn(row) else None
        return max(moment for moment in (row.next_retry_at, row.created_at, promoted) if moment is not None)

    @cached_property
    def last_sign(self) -> datetime | None:
        """When anything of a run without a lease was last written."""
        head = self.head.updated_at if self.head is not None else None
        row = self.carrier.processed_at if self.carrier is not None else None
        steps = [moment for step in self.steps for moment in (step.started_at, step.ended_at)]
        return max((moment for moment in (head, row, *steps) if moment is not None), default=None)

    @cached_property
    def silent(self) -> bool:
        """Whether a run without a lease has written nothing for longer than other systems allow."""
        return self.last_sign is None or self.age(self.last_sign) > FOREIGN_SILENCE.time

    # --- what it waits for

    @cached_property
    def open_calls(self) -> tuple[WaitingTool, ...]:
        """The calls whose results are not applied, of the head's epoch."""
        return tuple(tool for tool in self.waiting if tool.is_open and tool.turn_epoch == self.epoch)

    @cached_property
    def calls_of_other_epochs(self) -> tuple[WaitingTool, ...]:
        """The calls whose results are not applied, of other epochs than the head's."""
        return tuple(tool for tool in self.waiting if tool.is_open and tool.turn_epoch != self.epoch)

    @cached_property
    def unanswered(self) -> tuple[WaitingTool, ...]:
        """The open calls of which no result is there or on its way, and which no turn was asked to answer."""
        stored = {card.tool_call_id for card in self.results}
        return tuple(
            call
            for call in self.open_calls
            if call.wait_status == WAITING
            and call.tool_call_id not in stored
            and not self.reports_of(call)
            and not self.children_of(call)
        )

    def reports_of(self, call: WaitingTool) -> tuple[InboxRow, ...]:
        """The reports of a call, whatever became of them."""
        return tuple(row for row in self.rows if is_report(row) and row.correlation_id == call.tool_call_id)

    def children_of(self, call: WaitingTool) -> tuple[Child, ...]:
        """The turns whose end answers a call."""
        return tuple(child for child in self.children if child.tool_call_id == call.tool_call_id)
