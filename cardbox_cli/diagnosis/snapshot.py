"""The facts of one turn at one moment, for the rules of a diagnosis. This module is pure and does not judge.

`snapshot_reader` fills a `Snapshot`. Its properties are the conditions that several rules share, for example
the row that carries the turn.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cached_property

import msgspec

from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.execution.queue.messages import is_report, is_turn
from cardbox_cli.execution.requests.request_checks import Lack, find_lacks
from cardbox_cli.execution.turn_summary import TurnSummary
from cardbox_cli.limits import FOREIGN_SILENCE
from cardbox_cli.model.execution.situations import (
    AgentSetup,
    AwaitedCall,
    BatchFacts,
    BlockingLock,
    BoxFacts,
    BoxWriter,
    ChildTurn,
    CycleLink,
    DeliverableFacts,
    DurationEstimate,
    ResultCard,
    TurnPlace,
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
    find_failure_log,
    has_last_step_ended,
)
from cardbox_cli.settings import Settings

FAILURES = ("failed", "timeout")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The facts of one turn. If `agent_turn_id` is "", the agent has no active turn, but is not idle.

    - `keeps_turns`: True if this database has leases, workers and records.
    - `turn`: the summary that lists and pages show. `freed_at`: when the agent's last turn ended.
    - `rows`: the turn's inbox rows of types that cbx knows. `foreign_rows`: its rows of all other types.
    - `queue_length`: the number of turns that are queued for the agent.
    - `arguments`: the beginnings of the arguments of the calls in `waiting`, as JSON, by call id.
    - `batches`: the batches that answer its calls. `loads`: the number of live leases by worker.
    - `refused`: errors of the lint in the next request, or in the last request before the turn failed.
    - `step_pace`, `call_paces` (by tool), `refused` and `locks` are empty or None if they were not read.
    - `incomplete_allowed`: the project runs turns that lack cards.
    - `stored_commands`: the tools that are stored with a command.
    - `log`: the log of a failed turn's last model command, or of the command that failed.
    - `closed`: the tables that `role`, the database role of cbx, cannot read.
    - `dead_owners`: the owners of leases whose process has ended on this machine.
    - `read_only_by`: the setting that makes transactions read-only by default.
    - `blocker`: the active turn of a queued turn's agent. `awaited`: the turns that answer its open calls.
    - `closes`: the cycle that this turn closes. Each turn waits for the next one, and the last for the first.
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
    dead_owners: frozenset[str] = frozenset()
    loads: dict[str, int] = {}
    boxes: tuple[BoxFacts, ...] = ()
    results: tuple[ResultCard, ...] = ()
    delivered: tuple[DeliverableFacts, ...] = ()
    children: tuple[ChildTurn, ...] = ()
    batches: tuple[BatchFacts, ...] = ()
    call: AwaitedCall | None = None
    sharers: tuple[BoxWriter, ...] = ()
    refused: tuple[LintFinding, ...] = ()
    log: LogTail | None = None
    incomplete_allowed: bool = False
    stored_commands: frozenset[str] = frozenset()
    setup: AgentSetup = AgentSetup()
    step_pace: DurationEstimate | None = None
    call_paces: dict[str, DurationEstimate] = {}
    locks: tuple[BlockingLock, ...] | None = None
    closed: tuple[str, ...] = ()
    role: str = ""
    read_only_by: str | None = None
    blocker: "Snapshot | None" = None
    awaited: "tuple[Snapshot, ...]" = ()
    closes: tuple[CycleLink, ...] = ()

    def age(self, moment: datetime | None) -> timedelta:
        """Return the time since a moment; zero if the moment is unknown."""
        return self.now - moment if moment is not None else timedelta()

    @property
    def grace(self) -> timedelta:
        """The time within which workers poll for overdue rows."""
        return timedelta(seconds=self.settings.poll)

    def lease_of(self, row: InboxRow | None) -> Lease | None:
        """Return the lease on a row, if cbx knows one."""
        return next((lease for lease in self.leases if row and lease.inbox_id == row.inbox_id), None)

    # --- its row, its head, its end

    @cached_property
    def turn_rows(self) -> tuple[InboxRow, ...]:
        """The turn's own rows: one, unless another system enqueued the turn again under the same id."""
        return tuple(row for row in self.rows if is_turn(row))

    @cached_property
    def turn_row(self) -> InboxRow | None:
        """The turn's own row. If there are several, the first promoted one, else the first queued one."""
        ranks = {**dict.fromkeys((*DUE, PROCESSING), 0), QUEUED: 1}
        return min(self.turn_rows, key=lambda row: ranks.get(row.status, 2), default=None)

    @cached_property
    def promoted(self) -> tuple[InboxRow, ...]:
        """The open rows that are not queued."""
        return tuple(row for row in self.rows if row.status in (*DUE, PROCESSING))

    @cached_property
    def head_status(self) -> str | None:
        """The head's status if this turn is active, else None."""
        head = self.head
        if head is None or head.active_agent_turn_id != self.agent_turn_id or head.status == IDLE:
            return None
        return head.status

    @property
    def dispatched(self) -> bool:
        """True if the turn was promoted, but no worker has begun it."""
        return self.head_status == DISPATCHED

    @property
    def running(self) -> bool:
        return self.head_status == RUNNING

    @property
    def suspended(self) -> bool:
        return self.head_status == SUSPENDED

    @property
    def queued(self) -> bool:
        return self.head_status is None and self.turn_row is not None and self.turn_row.status == QUEUED

    @property
    def is_foreign(self) -> bool:
        """True if only rows of types that other systems know carry the turn."""
        return self.turn_row is None and bool(self.foreign_rows)

    @property
    def epoch(self) -> int:
        """The epoch that a fix must expect."""
        return 0 if self.head is None else self.head.turn_epoch

    @property
    def failure_log(self) -> LogTail | None:
        """The log that may say why the turn failed."""
        last_step = self.steps[-1].step_id if self.steps else None
        return find_failure_log([self.log] if self.log else [], last_step)

    @property
    def failed(self) -> bool:
        return self.has_ended and self.turn is not None and self.turn.end_status in FAILURES

    @property
    def has_ended(self) -> bool:
        """True if the turn has ended, as lists and pages show it."""
        if self.is_foreign:
            return self.head_status is None and not any(row.status in OPEN for row in self.foreign_rows)
        if self.turn is not None:
            return self.turn.status == ENDED
        # Neither its row nor its edge exists any more.
        return self.head_status is None and not self.promoted and has_last_step_ended(self.steps)

    @cached_property
    def being_ended(self) -> bool:
        """True if another system has just freed the agent and has not recorded the turn's end yet."""
        row = self.turn_row
        if self.head_status is not None or row is None or row.status != PROCESSING or self.lease_of(row):
            return False
        return self.freed_at is not None and timedelta() <= self.now - self.freed_at <= self.grace

    @property
    def resume_deadline(self) -> datetime | None:
        return None if self.head is None else self.head.resume_deadline

    @property
    def is_in_time(self) -> bool:
        """True if the deadline of the suspended turn is ahead, or passed less than `grace` ago."""
        deadline = self.resume_deadline
        return self.suspended and deadline is not None and self.now <= deadline + self.grace

    # --- its worker, and the workers of its target

    @cached_property
    def carrier(self) -> InboxRow | None:
        """The open row that carries the turn: its own row, or else the report that resumed it."""
        return next(self._carriers(), None)

    def _carriers(self) -> Iterator[InboxRow]:
        yield from (row for row in self.promoted if is_turn(row))
        if self.dispatched or self.running:
            reports = [row for row in self.promoted if is_report(row)]
            at_epoch = [row for row in reports if row.turn_epoch == self.epoch]
            yield from sorted(at_epoch, key=lambda row: row.status != PROCESSING)
            # In other systems, a report that resumed its turn keeps the previous epoch.
            yield from (row for row in reports if row.status == PROCESSING)

    @cached_property
    def open_reports(self) -> tuple[InboxRow, ...]:
        """The reports that are not consumed."""
        return tuple(row for row in self.rows if is_report(row) and row.status in OPEN)

    @cached_property
    def due_rows(self) -> tuple[InboxRow, ...]:
        """The rows of an active turn that a worker could claim now."""
        if self.head_status is None:
            return ()
        return tuple(row for row in self.rows if row.status in DUE and row.next_retry_at <= self.now)

    @cached_property
    def unclaimed(self) -> tuple[InboxRow, ...]:
        """The rows that have been due for longer than `unclaimed_time`."""
        limit = self.settings.unclaimed_time
        return tuple(row for row in self.due_rows if self.age(self.due_since(row)) > limit)

    def is_live(self, lease: Lease | None) -> bool:
        """Return True if a lease ends later than `grace` ago, and its owner's process may still exist."""
        return (
            lease is not None
            and lease.owner not in self.dead_owners
            and self.now < lease.expires_at + self.grace
        )

    @cached_property
    def worked_on(self) -> bool:
        """True if the row that carries the turn has a live lease."""
        return self.is_live(self.lease_of(self.carrier))

    @cached_property
    def live_workers(self) -> tuple[WorkerEntry, ...]:
        return tuple(worker for worker in self.workers if worker.live)

    @property
    def unserved(self) -> bool:
        """True if the agent has no target, or if no live worker serves it."""
        return self.worker_target is None or (self.keeps_turns and not self.live_workers)

    @cached_property
    def able_workers(self) -> tuple[WorkerEntry, ...]:
        """The live workers that do not report that they cannot work."""
        return tuple(worker for worker in self.live_workers if worker.last_error is None)

    @property
    def unable_owner(self) -> bool:
        """True if the worker that has claimed the turn reports that it cannot work."""
        lease = self.lease_of(self.carrier)
        return any(each.last_error for each in self.live_workers if lease and each.worker_id == lease.owner)

    @property
    def workers_are_unable(self) -> bool:
        """True if all live workers of the agent's target report that they cannot work."""
        return bool(self.live_workers) and not self.able_workers

    @cached_property
    def workers_are_busy(self) -> bool:
        """True if all able workers of the agent's target are at their concurrency limit."""
        return bool(self.able_workers) and all(
            self.loads.get(worker.worker_id, 0) >= worker.concurrency for worker in self.able_workers
        )

    # --- how long it has been waiting or silent

    def due_since(self, row: InboxRow) -> datetime:
        """Return since when a worker could have claimed this row.

        Other systems do not record the time of a promotion, and update the heads of unclaimed turns. The time
        is therefore that of the dispatch, or of the end of the agent's previous turn.
        """
        starts = (row.created_at, self.freed_at if is_turn(row) else None)
        # A worker can claim a row even if its creation time is in the future because of a wrong clock.
        past = [moment for moment in starts if moment is not None and moment <= self.now]
        return max([row.next_retry_at, *past])

    @cached_property
    def last_sign(self) -> datetime | None:
        """The time of the last write of a run without a lease."""
        row = self.carrier.processed_at if self.carrier is not None else None
        steps = [moment for step in self.steps for moment in (step.started_at, step.ended_at)]
        others = [moment for each in self.foreign_rows for moment in (each.created_at, each.processed_at)]
        signs = [moment for moment in (row, *steps, *others) if moment is not None]
        return max(signs, default=None if self.head is None else self.head.updated_at)

    @cached_property
    def silent(self) -> bool:
        """True if a run without a lease has written nothing for `FOREIGN_SILENCE`."""
        return self.last_sign is None or self.age(self.last_sign) > FOREIGN_SILENCE.duration

    # --- missing cards and open calls

    @cached_property
    def lacking(self) -> tuple[Lack, ...]:
        """The missing parts of its context and profile. A worker does not run a turn with such parts."""
        return tuple(find_lacks(self.boxes))

    @cached_property
    def open_calls(self) -> tuple[WaitingTool, ...]:
        """The calls of the head's epoch whose results are not applied."""
        return tuple(tool for tool in self.waiting if tool.is_open and tool.turn_epoch == self.epoch)

    @cached_property
    def calls_of_other_epochs(self) -> tuple[WaitingTool, ...]:
        """The calls of other epochs whose results are not applied."""
        return tuple(tool for tool in self.waiting if tool.is_open and tool.turn_epoch != self.epoch)

    def reports_of(self, call: WaitingTool) -> tuple[InboxRow, ...]:
        """Return all reports of a call, in any status."""
        return tuple(row for row in self.rows if is_report(row) and row.correlation_id == call.tool_call_id)

    @cached_property
    def unanswered(self) -> tuple[WaitingTool, ...]:
        """The open calls that have no report."""
        waiting = (call for call in self.open_calls if call.wait_status == WAITING)
        return tuple(call for call in waiting if not self.reports_of(call))

    @cached_property
    def unattended(self) -> tuple[WaitingTool, ...]:
        """The unanswered calls without a stored result, and without a turn or batch that answers them."""
        stored = {card.tool_call_id for card in self.results}
        joined = {batch.tool_call_id for batch in self.batches}
        calls = (call for call in self.unanswered if call.tool_call_id not in stored | joined)
        return tuple(call for call in calls if not self.children_of(call))

    @cached_property
    def waits_for(self) -> tuple[TurnPlace, ...]:
        """The turns that this one waits for: its agent's active turn, or the turns that answer its calls."""
        if self.suspended:
            # Only the newest turn answers a call. The turns of a batch answer it together.
            groups = [*(self.children_of(call)[-1:] for call in self.unanswered)]
            groups += (self.children_of(call, beside=True) for call in self.unanswered)
            children = (child for group in groups for child in group if child.end_status is None)
            return tuple(TurnPlace(child.agent_turn_id, child.agent_id) for child in children)
        if self.queued and self.head is not None and self.head.status != IDLE:
            active = self.head.active_agent_turn_id
            return () if active is None else (TurnPlace(active, self.agent_id),)
        return ()

    def children_of(self, call: WaitingTool, *, beside: bool = False) -> tuple[ChildTurn, ...]:
        """Return the turns that each answer a call, or with `beside`, answer it as children of a batch."""
        children = (child for child in self.children if child.tool_call_id == call.tool_call_id)
        return tuple(child for child in children if child.beside == beside)

    # --- the turns that it waits for

    @cached_property
    def all_turns(self) -> "tuple[Snapshot, ...]":
        """This turn and all turns that it waits for, directly or through others."""
        below = (self.blocker, *self.awaited)
        return (self, *(each for one in below if one is not None for each in one.all_turns))

    @cached_property
    def cycle(self) -> tuple[CycleLink, ...]:
        """The cycle of turns that this turn belongs to; empty if there is none."""
        closed = (each.closes for each in self.all_turns)
        mine = (cycle for cycle in closed if any(link.agent_turn_id == self.agent_turn_id for link in cycle))
        return next(mine, ())
