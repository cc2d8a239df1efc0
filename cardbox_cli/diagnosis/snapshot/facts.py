"""What is known of one turn at one moment: the record that a reading fills. Pure: nothing is read here."""

from datetime import datetime, timedelta

import msgspec

from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.execution.views.turn_page import TurnSummary
from cardbox_cli.model.execution.diagnosis import (
    AwaitedCall,
    BatchFacts,
    BoxFacts,
    Child,
    Delivered,
    Lock,
    Pace,
    ResultCard,
    Setup,
    Sharer,
)
from cardbox_cli.model.execution.logs import LogTail
from cardbox_cli.model.execution.turns import (
    AuditEntry,
    Edge,
    Head,
    InboxRow,
    Lease,
    Step,
    TurnRecord,
    WaitingTool,
    WorkerEntry,
)
from cardbox_cli.settings import Settings


class Facts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
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
