"""Values of execution: the rows that describe turns, the names of their states, and the moves between states.

A struct is one row, for example a head, a lease or a step. This module does not read the database. A status
is a string and not an enum, because other programs that share the tables may write states unknown to cbx.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from cardbox_cli.limits import RECURSION_DEPTH
from cardbox_cli.model.execution.headers import Lineage, parse_lineage

IDLE, DISPATCHED, RUNNING, SUSPENDED = "idle", "dispatched", "running", "suspended"
ACTIVE = (DISPATCHED, RUNNING, SUSPENDED)

QUEUED, PENDING, PROCESSING, DEFERRED = "queued", "pending", "processing", "deferred"
CONSUMED, ERROR, SKIPPED = "consumed", "error", "skipped"
DUE = (PENDING, DEFERRED)
OPEN = (QUEUED, PENDING, PROCESSING, DEFERRED)
INBOX_STATUSES = (*OPEN, CONSUMED, ERROR, SKIPPED)

WAITING, RECEIVED, APPLIED = "waiting", "received", "applied"

LLM_DONE: Final = "llm_done"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
# A step in STEP_ANSWERED has the model's answer. STEP_OVER: it has ended. STEP_INACTIVE: it runs nothing now.
STEP_ANSWERED = (LLM_DONE, COMPLETED, SUSPENDED)
STEP_OVER = (COMPLETED, FAILED)
STEP_INACTIVE = (*STEP_OVER, SUSPENDED)

EndStatus = Literal["success", "failed", "canceled", "timeout", "partial"]
END_STATUSES: tuple[EndStatus, ...] = ("success", "failed", "canceled", "timeout", "partial")
# The states of a turn that commands show, in the order in which a turn passes through them.
TURN_STATUSES = (QUEUED, PENDING, DISPATCHED, RUNNING, SUSPENDED, "ended")

DEFAULT_CHANNEL = "public"
MAX_DEPTH = RECURSION_DEPTH.value

# The author of the deliverables and reports that recovery writes when the turn itself cannot write them.
WATCHDOG = "sys.cbx"


def new_id(kind: Literal["turn", "step", "edge", "inbox", "audit", "log", "tc", "run", "ctx"]) -> str:
    """Return an id such as `turn_0192…`: `kind`, an underscore and a UUIDv7 as 32 hex digits.

    `tc` is for tool calls whose original id is in use. `run` and `ctx` are for runs and contexts of chats.
    """
    import uuid6

    return f"{kind}_{uuid6.uuid7().hex}"


class Fence(msgspec.Struct, frozen=True):
    """The right to write for a turn. It is valid while the agent's head has this turn and this epoch."""

    agent_id: str
    agent_turn_id: str
    turn_epoch: int


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's current state. If it is idle, everything except the epoch and the profile is None."""

    agent_id: str
    status: str
    active_agent_turn_id: str | None
    active_channel_id: str | None
    turn_epoch: int
    active_recursion_depth: int
    parent_step_id: str | None
    trace_id: str | None
    profile_box_id: str | None
    context_box_id: str | None
    output_box_id: str | None
    waiting_tool_count: int
    resume_deadline: datetime | None
    updated_at: datetime | None

    @property
    def fence(self) -> Fence:
        return self.fence_at(self.turn_epoch)

    def fence_at(self, turn_epoch: int) -> Fence:
        return Fence(self.agent_id, self.active_agent_turn_id or "", turn_epoch)


class InboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """An item that an agent must process. `payload` and `context_headers` may hold any JSON."""

    inbox_id: str
    project_id: str
    agent_id: str
    channel_id: str
    message_type: str
    enqueue_mode: str | None
    correlation_id: str | None
    agent_turn_id: str | None
    turn_epoch: int
    context_headers: Any
    payload: Any
    status: str
    retry_count: int
    next_retry_at: datetime
    last_error: str | None
    defer_reason: str | None
    processed_at: datetime | None
    archived_at: datetime | None
    created_at: datetime | None

    @property
    def turn_id(self) -> str:
        """Return the id of the row's turn. Other programs may store it in `correlation_id` or `inbox_id`."""
        return self.agent_turn_id or self.correlation_id or self.inbox_id

    @property
    def fence(self) -> Fence:
        """Return the fence that the row recorded when it was promoted or written. It may be out of date."""
        return Fence(self.agent_id, self.turn_id, self.turn_epoch)

    @property
    def lineage(self) -> Lineage:
        return parse_lineage(self.context_headers)

    @property
    def problem(self) -> str | None:
        """Return the row's error, or the reason why it was deferred, or None.

        Other programs store errors in the payload instead of the columns.
        """
        payload = self.payload if isinstance(self.payload, dict) else {}
        own = self.last_error or self.defer_reason
        problem = own or payload.get("dispatch_error") or payload.get("watchdog_error")
        return None if problem is None else str(problem)

    def pointer(self, name: str) -> str | None:
        """Return the box id that the payload stores under `name`, for example `context_box_id`, or None."""
        value = self.payload.get(name) if isinstance(self.payload, dict) else None
        return value if isinstance(value, str) else None

    @property
    def runtime_config(self) -> dict[str, Any]:
        """Return the dispatch's settings for the worker, or {} if the payload has none."""
        config = self.payload.get("runtime_config") if isinstance(self.payload, dict) else None
        return config if isinstance(config, dict) else {}


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a claimed inbox row, and the end of the claim."""

    inbox_id: str
    agent_id: str
    agent_turn_id: str | None
    turn_epoch: int
    owner: str
    claimed_at: datetime
    heartbeat_at: datetime
    expires_at: datetime


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One LLM call of a turn, and the turn's boxes at that time. `request_box_id` holds the sent request."""

    step_id: str
    agent_id: str
    agent_turn_id: str
    status: str
    trace_id: str | None
    parent_step_id: str | None
    profile_box_id: str | None = None
    context_box_id: str | None = None
    output_box_id: str | None = None
    request_box_id: str | None
    tool_call_ids: Any
    error: str | None
    metadata: Any
    started_at: datetime | None
    ended_at: datetime | None


def has_last_step_ended(steps: Sequence[Step]) -> bool:
    """Return whether the last step is over. In other systems, that ends the turn (SQL: last_step_status)."""
    return bool(steps) and steps[-1].status in STEP_OVER


class WaitingTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call whose result a suspended turn waits for."""

    agent_id: str
    agent_turn_id: str
    turn_epoch: int
    tool_call_id: str
    step_id: str
    tool_name: str
    wait_status: str
    tool_result_card_id: str | None
    created_at: datetime
    received_at: datetime | None
    applied_at: datetime | None

    @property
    def is_open(self) -> bool:
        """Return whether the turn still has to apply the result. The result may have arrived already."""
        return self.wait_status in (WAITING, RECEIVED)


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """An audit row: who dispatched whom, or who reported to whom."""

    edge_id: str
    channel_id: str | None
    primitive: str
    edge_phase: str
    source_agent_id: str | None
    source_agent_turn_id: str | None
    source_step_id: str | None
    target_agent_id: str | None
    target_agent_turn_id: str | None
    correlation_id: str | None
    enqueue_mode: str | None
    recursion_depth: int
    trace_id: str | None
    parent_step_id: str | None
    metadata: Any
    created_at: datetime | None

    @property
    def awaiting_call(self) -> str | None:
        """Return the id of the tool call that waits for the dispatched turn or its batch to end, or None."""
        about = self.metadata if isinstance(self.metadata, dict) else {}
        waiting = (each for each in (about.get("report_to"), about.get("batch")) if isinstance(each, dict))
        return next((call for each in waiting if isinstance(call := each.get("tool_call_id"), str)), None)


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a turn that only cbx records. `end_status` is None until the turn has ended.

    `output_start` is the number of cards in the output box when the turn was promoted. `report_to` names the
    tool call that waits for the turn to end: {agent_id, agent_turn_id, tool_call_id}.
    """

    agent_turn_id: str
    agent_id: str
    output_start: int | None
    report_to: dict[str, str] | None
    end_status: str | None
    end_epoch: int | None
    deliverable_card_id: str | None
    error_code: str | None
    error: str | None
    created_at: datetime
    ended_at: datetime | None


class Successor(msgspec.Struct, frozen=True):
    """A turn that repeats another one, by `action`. `end_status` is None before its end."""

    agent_turn_id: str
    action: Literal["retry", "replay"]
    end_status: str | None


def replacement(successors: Sequence[Successor]) -> Successor | None:
    """Return the turn that replaces a turn, of those that repeat it, oldest first.

    It is the newest success, or else the newest retry. A replay replaces a turn only if it succeeds.
    """
    succeeded = [each for each in successors if each.end_status == "success"]
    retried = [each for each in successors if each.action == "retry"]
    return next(reversed(succeeded or retried), None)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An action of an operator or of recovery. `agent_turn_id` is None if it is not about a turn."""

    audit_id: str
    agent_id: str | None
    agent_turn_id: str | None
    action: str
    actor: str
    reason: str | None
    epoch_before: int | None
    epoch_after: int | None
    detail: Any
    created_at: datetime


class WorkerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that announced itself. `last_error` explains why it cannot work.

    `project_id` is None if the worker serves all projects.
    """

    worker_id: str
    project_id: str | None
    worker_target: str
    host: str
    pid: int
    concurrency: int
    started_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    live: bool
    last_error: str | None = None
    last_error_at: datetime | None = None


class TurnEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn. `created` is False if the end was already recorded before this call."""

    agent_turn_id: str
    end_status: str
    deliverable_card_id: str | None
    promoted_turn_id: str | None = None
    created: bool = True


# --- the state of a turn: every list, page, wait, report and diagnosis uses this decision
#
# `turn_status` in SQL derives a first state from the head and the inbox row. `turn_state` corrects it.


ENDED = "ended"


def turn_state(
    status: str, row_status: str | None, *, record: TurnRecord | None, carried: bool, finished: bool
) -> str:
    """Return the state of a turn. `status` is the state that SQL derived from its head and its row.

    `carried` is True if an open row or tool call will continue the active turn. `finished` is True if the
    last step is over or it has a deliverable. A recorded end counts unless another program runs it again.
    """
    if record is not None and record.end_status is not None:
        return status if status in ACTIVE and carried else ENDED
    if status != ENDED:
        return status
    if row_status in OPEN:
        # Other systems record the end of a turn before they close its claimed row.
        return ENDED if record is None or row_status == PROCESSING else PENDING
    if row_status == SKIPPED or (row_status == ERROR and record is None):
        return ENDED
    # A closed row does not prove an end, because waiting or dropped turns have no open row either.
    return ENDED if finished else PENDING


# --- the state machines of heads and inbox rows
#
# Every change of a state in the database is one of these moves, a compare-and-set on its source states.
# `docs/concepts/turns.md` shows the same tables.


class Move(msgspec.Struct, frozen=True):
    """A named change from one of `sources` to `target`. The move adds `epoch` to the epoch of the turn."""

    name: str
    sources: tuple[str, ...]
    target: str
    epoch: int
    when: str


_HEAD = (
    Move("assign", (IDLE,), DISPATCHED, 1, "the oldest queued turn of an idle agent is promoted"),
    Move("enter", (DISPATCHED,), RUNNING, 0, "a worker begins its first step after a claim"),
    Move("suspend", (RUNNING,), SUSPENDED, 0, "the model called a tool that answers later"),
    Move("resume", (SUSPENDED,), RUNNING, 1, "the last result that it waited for was applied"),
    Move("reclaim", (DISPATCHED, RUNNING), DISPATCHED, 1, "a lease was lost, handed back or taken away"),
    Move("rebox", (DISPATCHED,), DISPATCHED, 1, "its context or output box is replaced"),
    Move("rebox-suspended", (SUSPENDED,), SUSPENDED, 1, "the same for a turn that waits"),
    Move("end", ACTIVE, IDLE, 0, "the turn ended by itself, or failed"),
    Move("stop", ACTIVE, IDLE, 1, "it was stopped, failed or put back into the queue from outside"),
)

_INBOX = (
    Move("promote", (QUEUED,), PENDING, 0, "its agent was idle and is assigned to it"),
    Move("claim", DUE, PROCESSING, 0, "a worker takes it for the time of a lease"),
    Move("consume", (PENDING, DEFERRED, PROCESSING), CONSUMED, 0, "it is done, or its turn has ended"),
    Move("defer", (PROCESSING,), DEFERRED, 0, "its owner asks for another try later"),
    Move("release", (PROCESSING,), PENDING, 0, "its lease was lost; counts as an attempt"),
    Move("kill", OPEN, ERROR, 0, "it was tried too often, or cannot be done"),
    Move(
        "retry",
        (ERROR, CONSUMED),
        PENDING,
        0,
        "an operator asks for it: a dead report or stop, or a report that was consumed and not applied",
    ),
    Move("skip", (QUEUED,), SKIPPED, 0, "its turn was stopped before it began, or has an older row"),
    Move(
        "requeue",
        (PENDING, DEFERRED, PROCESSING, CONSUMED, ERROR, SKIPPED),
        QUEUED,
        0,
        "an operator puts the turn back into its agent's queue",
    ),
)

HEAD_MOVES = {move.name: move for move in _HEAD}
INBOX_MOVES = {move.name: move for move in _INBOX}


# --- what the commands of a turn wrote to stderr


class _Log(msgspec.Struct, frozen=True, kw_only=True):
    log_id: str
    agent_turn_id: str
    step_id: str
    tool_call_id: str | None
    tool_name: str | None
    turn_epoch: int
    worker_id: str
    exit_code: int | None
    stderr_bytes: int
    started_at: datetime
    ended_at: datetime

    @property
    def failed(self) -> bool:
        return self.exit_code != 0

    @property
    def whose(self) -> str:
        return "the command of the model" if self.tool_name is None else f"tool {self.tool_name!r}"

    @property
    def outcome(self) -> str:
        if self.exit_code is None:
            return "was stopped"
        if self.exit_code < 0:
            return f"was killed by signal {-self.exit_code}"
        return f"ended with exit code {self.exit_code}"


class CommandLog(_Log, frozen=True, kw_only=True):
    """The stored end of a command's stderr, with secrets redacted. The command wrote `stderr_bytes` bytes.

    `tool_call_id` and `tool_name` are None if the command answers instead of a model. `exit_code` is negative
    if a signal ended the command, and None if cbx stopped it.
    """

    stderr: str


class LogTail(_Log, frozen=True, kw_only=True):
    """A command log that carries only the last characters of the stored stderr."""

    stderr_tail: str


def find_failure_log(logs: Sequence[LogTail], last_step_id: str | None) -> LogTail | None:
    """Return the command log that may explain why a turn failed, or None.

    That is the last log that either failed or belongs to the command that answers instead of a model. If that
    command succeeded, its log counts only in the turn's last step, where its answer may have been invalid.
    """
    log = next((log for log in reversed(logs) if log.failed or log.tool_name is None), None)
    return log if log is not None and (log.failed or log.step_id == last_step_id) else None


def last_lines(text: str, most: int = 10) -> list[str]:
    return [line for line in text.rstrip().split("\n") if line.strip()][-most:]
