"""Facts, as read from the database, on which decisions about turns and diagnoses are based."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from cardbox_cli.limits import EARLIEST
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.headers import Lineage, parse_lineage
from cardbox_cli.model.execution.turns import (
    COMPLETED,
    FAILED,
    EndStatus,
    Head,
    InboxRow,
    Lease,
    TurnRecord,
    WaitingTool,
)


class ProfileCard(msgspec.Struct, frozen=True, kw_only=True):
    """A profile's card that is not deleted. `name` is as stored, and may not be a string."""

    name: Any
    expires_at: datetime | None


class HeadState(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    turn_epoch: int
    active_agent_turn_id: str | None


class ParentTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn on whose behalf another one is dispatched, from its inbox row."""

    agent_id: str
    context_headers: Any

    @property
    def lineage(self) -> Lineage:
        return parse_lineage(self.context_headers)


class DispatchSituation(msgspec.Struct, frozen=True, kw_only=True):
    """The agent and all rows that a dispatch names, at `now`. The head and the boxes are locked.

    `queued_turn_id` is the agent's next turn. `earlier_inbox_id` is the row with the dispatch's correlation
    id. `context_box_id` and `output_box_id` are canonical ids, or None if the given ids are invalid.
    `output_user` is a turn of another agent that writes to the output box, with that agent.
    `project_status` is None if the project has no row, `profile_cards` if the box has no profile.
    `profile_box_id` and `output_length` are None if the box is missing.
    """

    now: datetime = EARLIEST
    worker_target: str
    own_profile_box_id: str
    head: HeadState | None
    queued_turn_id: str | None
    project_status: str | None
    profile_box_id: str | None
    profile_cards: list[ProfileCard] | None
    is_source_known: bool
    parent: ParentTurn | None
    earlier_inbox_id: str | None
    context_box_id: str | None = None
    has_context_box: bool
    output_box_id: str | None = None
    output_length: int | None
    output_user: tuple[str | None, str] | None


class ClaimedSituation(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the inbox, the head of its agent and its lease, all locked.

    `output_start` is the position of the turn's first own card, or None if it was not recorded. `calls` are
    the calls that the turn of a report waits or waited for, in order. If the report is to be applied,
    `results` has the result cards of all calls of the step. If `is_old`, the head changed during the read.
    """

    row: InboxRow
    head: Head | None
    lease: Lease | None
    output_start: int | None
    calls: list[WaitingTool] | None = None
    results: list[Card] = []
    is_old: bool = False


class PromotionSituation(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest queued row of an idle agent, and its output box, at `now`; both are locked.

    If `is_repeated`, an older row is for the same turn. `end_status` is the turn's end, or None.
    `output_start` is the position of the turn's first own card in the box. `worker_target` is None if the
    agent is not on the roster.
    """

    now: datetime = EARLIEST
    row: InboxRow
    is_repeated: bool
    end_status: str | None
    worker_target: str | None
    has_output_box: bool
    output_user: tuple[str | None, str] | None
    output_start: int


EndMove = Literal["end", "stop"]


class LatestDeliverable(msgspec.Struct, frozen=True, kw_only=True):
    """A deliverable that is not deleted."""

    card_id: str
    expires_at: datetime | None


class EndSituation(msgspec.Struct, frozen=True, kw_only=True):
    """An active turn, whose head is locked, at `now`. `record` is None if cbx has no record of the turn.

    `delivered` lists the turn's own deliverables in its output box, newest first, or is None.
    """

    now: datetime = EARLIEST
    record: TurnRecord | None
    delivered: list[LatestDeliverable] | None

    @property
    def deliverable(self) -> str | None:
        """Return the last deliverable that has not expired, or None."""
        for each in self.delivered or ():
            if each.expires_at is None or each.expires_at > self.now:
                return each.card_id
        return None


class EndPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn. `move` changes its head. `step_status` is the new state of its open steps.

    If `is_repeated`, the turn had already ended, and the move only frees its agent. If `needs_deliverable`,
    the turn has no deliverable. If set, `remembered_box_id` is recorded as the last output box of the agent.
    """

    move: EndMove
    end_status: EndStatus
    step_status: Literal["completed", "failed"]
    error_code: str | None
    message: str | None
    is_repeated: bool
    needs_deliverable: bool
    remembered_box_id: str | None


_REPEATED = "its turn had already ended"


def decide_end(
    situation: EndSituation,
    end_status: EndStatus,
    *,
    move: EndMove,
    output_box_id: str | None,
    error_code: str | None = None,
    message: str | None = None,
) -> EndPlan:
    """Return the plan to end a turn with this output box with `end_status`."""
    repeated = situation.record is not None and situation.record.end_status is not None
    is_success = end_status == "success" and not repeated
    return EndPlan(
        move=move,
        end_status=end_status,
        step_status=COMPLETED if is_success else FAILED,
        error_code=error_code,
        message=_REPEATED if repeated else message,
        is_repeated=repeated,
        needs_deliverable=not repeated and situation.deliverable is None,
        remembered_box_id=None if repeated else output_box_id,
    )


LossKind = Literal["dangling", "deleted", "expired"]


class TurnPlace(msgspec.Struct, frozen=True):
    agent_turn_id: str
    agent_id: str


class CycleLink(TurnPlace, frozen=True):
    """A turn in a cycle of turns that wait for each other. The previous turn waits for this one."""

    status: str


class LostCard(msgspec.Struct, frozen=True):
    """A reference of a box to a card that readers do not see."""

    box_id: str
    card_id: str
    kind: LossKind


class BoxFacts(msgspec.Struct, frozen=True):
    """A box of a turn, the name of its pointer, and its problems.

    If `without_profile`, the box should contain the turn's profile, but has no visible profile.
    """

    pointer: str
    box_id: str
    exists: bool
    lost: tuple[LostCard, ...] = ()
    without_profile: bool = False


class LiveWorker(msgspec.Struct, frozen=True):
    """A live worker and its project, which is None if it serves all projects."""

    worker_id: str
    worker_target: str
    project_id: str | None


class AgentSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a turn's agent, and its workers.

    `profile_target` is the current worker target of the profile with the agent's profile name. `serving` has
    the live workers of the project, of any target. `elsewhere` has workers of the agent's target that serve
    only another project. `archived` is the project's id if the project is archived.
    """

    on_roster: bool = True
    profile_name: str | None = None
    profile_target: str | None = None
    serving: tuple[LiveWorker, ...] = ()
    elsewhere: tuple[LiveWorker, ...] = ()
    archived: str | None = None


class DurationEstimate(msgspec.Struct, frozen=True):
    """95th percentile of the durations of the last (at most 100) ended items."""

    ended: int
    p95_seconds: float


class ResultCard(msgspec.Struct, frozen=True):
    """A tool.result card of a call, reported or not."""

    tool_call_id: str
    card_id: str
    created_at: datetime | None


class ChildTurn(msgspec.Struct, frozen=True):
    """A turn that another one dispatched. `tool_call_id` is the call that its end answers, if any.

    If `beside` is set, the turn belongs to a batch, and the end of the batch answers the call.
    """

    agent_turn_id: str
    agent_id: str
    source_turn_id: str
    tool_call_id: str | None
    beside: bool = False
    end_status: str | None = None


class TaskFacts(msgspec.Struct, frozen=True):
    """A child of a batch, from its row. `turn` is its turn, `due_at` the time of its dispatch.

    `ended` and `ended_at` are the end of that turn, even if the batch has not recorded it yet.
    """

    batch_id: str
    task_index: int | None
    status: str
    turn: str | None
    due_at: datetime | None
    ended: str | None = None
    ended_at: datetime | None = None


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A batch whose end answers a call of a turn. cbx only ends batches that its own `table` stores."""

    batch_id: str
    table: str
    source_turn_id: str
    tool_call_id: str
    status: str
    deadline_at: datetime | None
    ended_at: datetime | None
    tasks: tuple[TaskFacts, ...]

    @property
    def is_own(self) -> bool:
        return self.table == "cbx.batches"


class DeliverableFacts(msgspec.Struct, frozen=True):
    """A deliverable with the metadata of its turn and step."""

    agent_turn_id: str
    card_id: str
    step_id: str | None


class AwaitedCall(msgspec.Struct, frozen=True):
    """A tool call that waits for the end of a turn, and the state of its report."""

    agent_id: str
    agent_turn_id: str
    tool_call_id: str
    wait_status: str | None
    report_status: str | None


class BoxWriter(msgspec.Struct, frozen=True):
    box_id: str
    agent_id: str
    agent_turn_id: str


class HeldLock(msgspec.Struct, frozen=True):
    """A lock of the server. `row` is None for a lock of the table. `pid` is 0 for a prepared transaction.

    A session waits for a lock that is not granted, and later requests wait for that session.
    """

    table: str
    row: str | None
    mode: str
    granted: bool
    pid: int


class DatabaseSession(msgspec.Struct, frozen=True):
    """Activity of a database session. Ages are in seconds, or None if this role cannot see them.

    `blocked_by` has the sessions that it waits for, `waits_for` the table, `waited` the seconds so far.
    """

    pid: int
    application: str | None
    state: str | None
    seconds: float | None
    query_seconds: float | None
    query: str | None
    blocked_by: list[int]
    waits_for: str | None
    waited: float | None


class BlockingLock(msgspec.Struct, frozen=True, kw_only=True):
    """A blocking lock, and the session at the root of the waiting sessions, which itself waits for none.

    `row` is None if the lock covers the whole table. It has blocked `blocked` sessions for `seconds`. If
    another session holds or requests the lock and waits for the root, `waiting` is that session. If
    `bars_reading`, the table cannot be read.
    """

    table: str
    row: str | None
    mode: str
    session: DatabaseSession
    seconds: float
    blocked: int
    waiting: DatabaseSession | None = None
    bars_reading: bool = False
