"""The facts of one turn at one moment, as the rules of a diagnosis see it. Pure: reads nothing.

Owns the record that a reading fills, and the questions that several rules ask of it, for example which row
carries the turn. Judges nothing.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cached_property

import msgspec

from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.execution.queue.messages import is_report, is_turn
from cardbox_cli.execution.requests.request_checks import Lack, lacks
from cardbox_cli.execution.turn_summary import TurnSummary
from cardbox_cli.limits import FOREIGN_SILENCE
from cardbox_cli.model.execution.situations import (
    AwaitedCall,
    BatchFacts,
    BoxFacts,
    Child,
    Delivered,
    Link,
    Lock,
    Pace,
    Place,
    ResultCard,
    Setup,
    Sharer,
)
from cardbox_cli.model.execution.turns import (
    DISPATCHED,
    DUE,
    ENDED,
    IDLE,
    OPEN,
    PROCESSING,
    QUEUED,
    RUNNING,
    SUSPENDED,
    WAITING,
    AuditEntry,
    Edge,
    Head,
    InboxRow,
    Lease,
    LogTail,
    Step,
    TurnRecord,
    WaitingTool,
    WorkerEntry,
    last_is_over,
    of_failure,
)
from cardbox_cli.settings import Settings

FAILURES = ("failed", "timeout")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The facts of one turn. `keeps_turns`: whether leases, workers and records are known here at all.

    `turn` is what lists and pages say of it; `freed_at` is when its agent last ended a turn.
    `queue_length`: how many turns are queued for the turn's agent. `batches` are those that answer its
    calls. `arguments` are the beginnings of what the calls of `waiting` were made with, as JSON, where their
    cards are there. `loads`: how many live leases each worker has. `refused` are the errors that the lint
    finds in what the turn asks its model next, or asked last before it failed, where that was looked at; so
    it is with `step_pace` and `call_paces`, by tool. `incomplete_allowed`: the project lets turns run that
    lack cards. `stored_commands` are the tools that are stored with a command. `log` is that of a failed
    turn's last command of the model, or that failed. `locks` is None where they were not looked up.

    `foreign_rows` are the turn's inbox rows of types that other systems know alone, which `rows` leaves
    out. `closed` are the tables that `role`, as whom we look, may not read; `read_only_by` is what makes
    everybody's transactions read-only. Where the turn is "", its agent is at none and not idle.

    `blocker` is what is known of the turn that the agent of a queued turn is at, `awaited` of the turns whose
    ends answer its open calls; `closes` is the cycle that the turn closes, in which each waits for the next
    and the last for the first.
    """

    agent_turn_id: str
    agent_id: str
    now: datetime
    settings: Settings
    keeps_turns: bool
    turn: TurnSummary | None = None
    head: Head | None = None
    freed_at: datetime | None = None
    rows: tuple[InboxRow, ...] = ()
    foreign_rows: tuple[InboxRow, ...] = ()
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
    delivered: tuple[Delivered, ...] = ()
    children: tuple[Child, ...] = ()
    batches: tuple[BatchFacts, ...] = ()
    call: AwaitedCall | None = None
    sharers: tuple[Sharer, ...] = ()
    refused: tuple[LintFinding, ...] = ()
    log: LogTail | None = None
    incomplete_allowed: bool = False
    stored_commands: frozenset[str] = frozenset()
    setup: Setup = Setup()
    step_pace: Pace | None = None
    call_paces: dict[str, Pace] = {}
    locks: tuple[Lock, ...] | None = None
    closed: tuple[str, ...] = ()
    role: str = ""
    read_only_by: str | None = None
    blocker: "Snapshot | None" = None
    awaited: "tuple[Snapshot, ...]" = ()
    closes: tuple[Link, ...] = ()

    def age(self, moment: datetime | None) -> timedelta:
        """How long ago; no time at all where nobody knows."""
        return self.now - moment if moment is not None else timedelta()

    @property
    def grace(self) -> timedelta:
        """How long the next look at what is overdue may take."""
        return timedelta(seconds=self.settings.poll)

    def lease_of(self, row: InboxRow | None) -> Lease | None:
        """Who has claimed this row, as far as cbx knows."""
        return next((lease for lease in self.leases if row and lease.inbox_id == row.inbox_id), None)

    # --- its row, its head, its end

    @cached_property
    def turn_rows(self) -> tuple[InboxRow, ...]:
        """The rows that asked for the turn: one, unless another system enqueued it again under its own id."""
        return tuple(row for row in self.rows if is_turn(row))

    @cached_property
    def turn_row(self) -> InboxRow | None:
        """The row that asked for the turn; of several the first that is promoted, else queued, else any."""
        for statuses in ((*DUE, PROCESSING), (QUEUED,)):
            for row in self.turn_rows:
                if row.status in statuses:
                    return row
        return next(iter(self.turn_rows), None)

    @cached_property
    def promoted(self) -> tuple[InboxRow, ...]:
        """The open rows that are out of the queue."""
        return tuple(row for row in self.rows if row.status in (*DUE, PROCESSING))

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

    @property
    def is_foreign(self) -> bool:
        """Whether rows of types that other systems know alone carry the turn, and no `turn_row`."""
        return self.turn_row is None and bool(self.foreign_rows)

    @cached_property
    def epoch(self) -> int:
        """The epoch that a fix must expect."""
        return 0 if self.head is None else self.head.turn_epoch

    @property
    def failure_log(self) -> LogTail | None:
        """The log that may say why the turn failed."""
        last_step = self.steps[-1].step_id if self.steps else None
        return of_failure([self.log] if self.log else [], last_step)

    @property
    def failed(self) -> bool:
        """Whether the turn is over, and failed or took too long."""
        return self.ended and self.turn is not None and self.turn.end_status in FAILURES

    @property
    def ended(self) -> bool:
        """Whether the turn is over, as lists and pages say."""
        if self.is_foreign:
            return self.at_head is None and not any(row.status in OPEN for row in self.foreign_rows)
        if self.turn is not None:
            return self.turn.status == ENDED
        # Nothing that asked for it is left.
        return self.at_head is None and not self.promoted and last_is_over(self.steps)

    @cached_property
    def being_ended(self) -> bool:
        """Whether another system has just freed the agent of the turn, whose end it writes after that."""
        row = self.turn_row
        if self.at_head is not None or row is None or row.status != PROCESSING or self.lease_of(row):
            return False
        return self.freed_at is not None and timedelta() <= self.now - self.freed_at <= self.grace

    @property
    def in_time(self) -> bool:
        """Whether the deadline of what the suspended turn waits for is ahead, or was a moment ago."""
        deadline = None if self.head is None else self.head.resume_deadline
        return self.suspended and deadline is not None and self.now <= deadline + self.grace

    # --- who works on it, and who could

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

    def lives(self, lease: Lease | None) -> bool:
        """Whether a lease is there and not over, or since so short a time that nobody may have acted."""
        return lease is not None and self.now < lease.expires_at + self.grace

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
    def able_workers(self) -> tuple[WorkerEntry, ...]:
        """Those of them that do not say that they cannot work."""
        return tuple(worker for worker in self.live_workers if worker.last_error is None)

    @property
    def unable_owner(self) -> bool:
        """Whether the worker that has claimed the turn says that it cannot work."""
        lease = self.lease_of(self.carrier)
        return any(each.last_error for each in self.live_workers if lease and each.worker_id == lease.owner)

    @property
    def workers_are_unable(self) -> bool:
        """Whether every live worker of the agent's target says that it cannot work."""
        return bool(self.live_workers) and not self.able_workers

    @cached_property
    def workers_are_busy(self) -> bool:
        """Whether every live worker of the agent's target that can work has as many rows as it takes."""
        return bool(self.able_workers) and all(
            self.loads.get(worker.worker_id, 0) >= worker.concurrency for worker in self.able_workers
        )

    # --- since when nobody has

    def due_since(self, row: InboxRow) -> datetime:
        """Since when this row could have been claimed.

        Other systems date no promotion, and touch the head of a turn that nobody claims: a turn was promoted
        when it was asked for, or when its agent's last one ended.
        """
        others = [row.created_at, self.freed_at if is_turn(row) else None]
        # A clock that was ahead when a row was made keeps nobody from claiming it.
        past = [moment for moment in others if moment is not None and moment <= self.now]
        return max([row.next_retry_at, *past])

    @cached_property
    def last_sign(self) -> datetime | None:
        """When anything of a run without a lease was last written."""
        row = self.carrier.processed_at if self.carrier is not None else None
        steps = [moment for step in self.steps for moment in (step.started_at, step.ended_at)]
        others = [moment for each in self.foreign_rows for moment in (each.created_at, each.processed_at)]
        signs = [moment for moment in (row, *steps, *others) if moment is not None]
        return max(signs, default=None if self.head is None else self.head.updated_at)

    @cached_property
    def silent(self) -> bool:
        """Whether a run without a lease has written nothing for longer than other systems allow."""
        return self.last_sign is None or self.age(self.last_sign) > FOREIGN_SILENCE.time

    # --- what it lacks and waits for

    @cached_property
    def lacking(self) -> tuple[Lack, ...]:
        """What is gone of its context and profile, for which a worker would not run it."""
        return tuple(lacks(self.boxes))

    @cached_property
    def open_calls(self) -> tuple[WaitingTool, ...]:
        """The calls whose results are not applied, of the head's epoch."""
        return tuple(tool for tool in self.waiting if tool.is_open and tool.turn_epoch == self.epoch)

    @cached_property
    def calls_of_other_epochs(self) -> tuple[WaitingTool, ...]:
        """The calls whose results are not applied, of other epochs than the head's."""
        return tuple(tool for tool in self.waiting if tool.is_open and tool.turn_epoch != self.epoch)

    def reports_of(self, call: WaitingTool) -> tuple[InboxRow, ...]:
        """The reports of a call, whatever became of them."""
        return tuple(row for row in self.rows if is_report(row) and row.correlation_id == call.tool_call_id)

    @cached_property
    def unanswered(self) -> tuple[WaitingTool, ...]:
        """The open calls that wait for a result of which nothing is on its way."""
        waiting = (call for call in self.open_calls if call.wait_status == WAITING)
        return tuple(call for call in waiting if not self.reports_of(call))

    @cached_property
    def unattended(self) -> tuple[WaitingTool, ...]:
        """The unanswered calls of which no result is stored, and which no turn was asked to answer."""
        stored = {card.tool_call_id for card in self.results}
        joined = {batch.tool_call_id for batch in self.batches}
        calls = (call for call in self.unanswered if call.tool_call_id not in stored | joined)
        return tuple(call for call in calls if not self.children_of(call))

    @cached_property
    def waits_for(self) -> tuple[Place, ...]:
        """The turns that must go on before this one can: its agent's, or those that answer its calls."""
        if self.suspended:
            # The one that was asked last answers the call; those of a batch answer it together.
            asked = [*(self.children_of(call)[-1:] for call in self.unanswered)]
            asked += (self.children_of(call, beside=True) for call in self.unanswered)
            children = (child for some in asked for child in some if child.end_status is None)
            return tuple(Place(child.agent_turn_id, child.agent_id) for child in children)
        if self.queued and self.head is not None and self.head.status != IDLE:
            at = self.head.active_agent_turn_id
            return () if at is None else (Place(at, self.agent_id),)
        return ()

    def children_of(self, call: WaitingTool, *, beside: bool = False) -> tuple[Child, ...]:
        """The turns whose end answers a call, or that answer it together, `beside` each other."""
        children = (child for child in self.children if child.tool_call_id == call.tool_call_id)
        return tuple(child for child in children if child.beside == beside)

    # --- the turns that it waits for

    @cached_property
    def deep(self) -> "tuple[Snapshot, ...]":
        """This turn and all that it waits for, by as many turns between."""
        below = (*([] if self.blocker is None else [self.blocker]), *self.awaited)
        return (self, *(each for one in below for each in one.deep))

    @cached_property
    def cycle(self) -> tuple[Link, ...]:
        """The turns that wait for each other, of which this is one."""
        closed = (each.closes for each in self.deep)
        mine = (cycle for cycle in closed if any(link.agent_turn_id == self.agent_turn_id for link in cycle))
        return next(mine, ())
