"""The facts that cbx reads from the database before it decides about a turn or diagnoses it."""

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
    """A profile card that is not deleted. `name` is the stored JSON value, which may not be a string."""

    name: Any
    expires_at: datetime | None


class HeadState(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    turn_epoch: int
    active_agent_turn_id: str | None


class ParentTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn on whose behalf a new turn is dispatched, as its own inbox row describes it."""

    agent_id: str
    context_headers: Any

    @property
    def lineage(self) -> Lineage:
        return parse_lineage(self.context_headers)


class DispatchSituation(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a dispatch and the rows that the request names, read at `now`. Head and boxes are locked.

    `queued_turn_id` is the agent's oldest queued turn. `earlier_inbox_id` is an existing row with the same
    correlation id. `context_box_id` and `output_box_id` are canonical ids, or None if the given ids are
    invalid. `output_user` is (turn id, agent id) if another agent's turn writes to the output box.
    `project_status` is None if the project has no row. `profile_cards` is None if the profile box holds no
    profile. `profile_box_id` and `output_length` are None if their box is missing.
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
    """An inbox row, its agent's head and its lease. All three are locked.

    `output_start` is the position of the turn's first own card, or None if it was not recorded. If the row is
    a report, `calls` lists the calls that its turn waits for or has waited for, in order. `results` has the
    result cards of all calls of the step if the report can be applied. `is_old` is True if the head changed
    during the read.
    """

    row: InboxRow
    head: Head | None
    lease: Lease | None
    output_start: int | None
    calls: list[WaitingTool] | None = None
    results: list[Card] = []
    is_old: bool = False


class PromotionSituation(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest queued row of an idle agent and the output box that it names, at `now`. Both are locked.

    `is_repeated` is True if an older row has the same turn. `end_status` is None unless the turn has ended.
    `output_user` is (turn id, agent id) if another agent's turn writes to the box. `output_start` is the
    position of the turn's first own card in it. `worker_target` is None for an agent without a roster entry.
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
    card_id: str
    expires_at: datetime | None


class EndSituation(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about an active turn that is about to end, read at `now`. Its head is locked.

    `record` is None if cbx has no record of the turn. `delivered` lists the deliverables that the turn wrote
    to its output box, newest first. It is None if there are none.
    """

    now: datetime = EARLIEST
    record: TurnRecord | None
    delivered: list[LatestDeliverable] | None

    @property
    def deliverable(self) -> str | None:
        """Return the card id of the newest deliverable that has not expired, or None."""
        for each in self.delivered or ():
            if each.expires_at is None or each.expires_at > self.now:
                return each.card_id
        return None


class EndPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The decided end of a turn. `move` is applied to its head. Its open steps get the state `step_status`.

    `is_repeated` is True if the turn has already ended, so the move only frees the agent. `needs_deliverable`
    is True if the turn has no deliverable. If set, `remembered_box_id` becomes the agent's last output box.
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
    """Decide how to end a turn with `end_status`. `output_box_id` is the turn's output box."""
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
    """A turn in a cycle of waiting turns. The turn that precedes it in the cycle waits for it."""

    status: str


class LostCard(msgspec.Struct, frozen=True):
    """A card that a box references and readers cannot see, because it is missing, deleted or expired."""

    box_id: str
    card_id: str
    kind: LossKind


class BoxFacts(msgspec.Struct, frozen=True):
    """A box of a turn and its problems. `pointer` is the field of the turn that names the box.

    `without_profile` is True if the box should contain the turn's profile and no visible profile is in it.
    """

    pointer: str
    box_id: str
    exists: bool
    lost: tuple[LostCard, ...] = ()
    without_profile: bool = False


class LiveWorker(msgspec.Struct, frozen=True):
    """A live worker. `project_id` is None if it serves all projects."""

    worker_id: str
    worker_target: str
    project_id: str | None


class AgentSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a turn's agent, and the live workers that might serve it.

    `profile_target` is the worker target in the current version of the agent's profile. `serving` lists the
    workers that serve the project, for any target. `elsewhere` lists the workers that have the agent's target
    and serve only another project. `archived` is the project's id if the project is archived.
    """

    on_roster: bool = True
    profile_name: str | None = None
    profile_target: str | None = None
    serving: tuple[LiveWorker, ...] = ()
    elsewhere: tuple[LiveWorker, ...] = ()
    archived: str | None = None


class DurationEstimate(msgspec.Struct, frozen=True):
    """The 95th percentile of the durations of the newest ended items. `ended` counts them, at most 100."""

    ended: int
    p95_seconds: float


class ResultCard(msgspec.Struct, frozen=True):
    """A tool.result card of a call. It may or may not have been reported."""

    tool_call_id: str
    card_id: str
    created_at: datetime | None


class ChildTurn(msgspec.Struct, frozen=True):
    """A turn that the turn `source_turn_id` dispatched. Its end answers the call `tool_call_id`, if any.

    If `beside` is True, the turn belongs to a batch, and the end of the batch answers the call instead.
    """

    agent_turn_id: str
    agent_id: str
    source_turn_id: str
    tool_call_id: str | None
    beside: bool = False
    end_status: str | None = None


class TaskFacts(msgspec.Struct, frozen=True):
    """One child of a batch. `turn` is the id of its turn, and `due_at` is the time when its dispatch is due.

    `ended` and `ended_at` describe the end of that turn, which the batch may not have recorded yet.
    """

    batch_id: str
    task_index: int | None
    status: str
    turn: str | None
    due_at: datetime | None
    ended: str | None = None
    ended_at: datetime | None = None


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A batch whose end answers a tool call. cbx ends a batch only if its own table (`is_own`) stores it."""

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
    """A deliverable, and the turn and step that its metadata names."""

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
