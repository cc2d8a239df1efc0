"""What decides on a request for a turn, on the promotion of a queued one, and on a claimed row: what one read
finds.

Does no I/O.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from cardbox_cli.limits import EARLIEST
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.headers import Lineage, lineage_of
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
    """A profile's card that is not deleted. `name` is as it is stored, be it no text."""

    name: Any
    expires_at: datetime | None


class HeadState(msgspec.Struct, frozen=True, kw_only=True):
    """What the head of an agent says that decides on a dispatch."""

    status: str
    turn_epoch: int
    active_agent_turn_id: str | None


class ParentTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn on whose behalf another is asked for, by the row that asked for it."""

    agent_id: str
    context_headers: Any

    @property
    def lineage(self) -> Lineage:
        """Where it stands."""
        return lineage_of(self.context_headers)


class DispatchSituation(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that is asked, and all that a request for a turn of it names, at `now`.

    The head and the boxes are held from then on.
    `queued_turn_id` is the turn that is next for the agent, `earlier_inbox_id` the row that has the request's
    correlation id, `output_user` a turn of another agent that writes to the output box, and that agent.
    `project_status` is None where the project has no row, `profile_box_id` where there is no such box,
    `profile_cards` where it has none, `output_length` where there is no such output box.
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
    has_context_box: bool
    output_length: int | None
    output_user: tuple[str | None, str] | None


class ClaimedSituation(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the inbox, the head of its agent and its lease, all of them held.

    `output_start` is where the own cards of its turn begin, None where that is not noted. For a report,
    `calls` are those that its turn waits or waited for, in order, and, where it is to be applied, `results`
    the cards that it and the other calls of its step name. `is_old`: the head was changed while the read
    waited for it.
    """

    row: InboxRow
    head: Head | None
    lease: Lease | None
    output_start: int | None
    calls: list[WaitingTool] | None = None
    results: list[Card] = []
    is_old: bool = False


class PromotionSituation(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest queued row of an idle agent, and its output box, at `now`; both are held from then on.

    `is_repeated`: an older row asks for the same turn. `end_status` is how that turn ended, None where it has
    not, `output_start` at which place of the box its own cards begin, or will. `worker_target` is None for an
    agent on no roster.
    """

    now: datetime = EARLIEST
    row: InboxRow
    is_repeated: bool
    end_status: str | None
    worker_target: str | None
    has_output_box: bool
    output_user: tuple[str | None, str] | None
    output_start: int


# What decides on the end of an active turn, as one read finds it, and what is written then.
#
# Does no I/O.


EndMove = Literal["end", "stop"]


class LatestDeliverable(msgspec.Struct, frozen=True, kw_only=True):
    """A deliverable that is not deleted."""

    card_id: str
    expires_at: datetime | None


class EndSituation(msgspec.Struct, frozen=True, kw_only=True):
    """An active turn, whose head is held, at `now`. `record` is None for one that cbx has not met.

    `delivered` are the deliverables of its own that its output box holds, the last first; None for none.
    """

    now: datetime = EARLIEST
    record: TurnRecord | None
    delivered: list[LatestDeliverable] | None

    @property
    def deliverable(self) -> str | None:
        """The last one that has not expired."""
        valid = (
            each for each in self.delivered or () if each.expires_at is None or each.expires_at > self.now
        )
        return next((each.card_id for each in valid), None)


class EndPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ends, by this move of its head. `step_status` is what its open steps become.

    `is_repeated`: it had ended before, and that end stays; it leaves its agent only. `needs_deliverable`: it
    has none of its own. `remembered_box_id` is the box that its agent wrote last from then on, if it did.
    """

    move: EndMove
    end_status: EndStatus
    step_status: Literal["completed", "failed"]
    error_code: str | None
    message: str | None
    is_repeated: bool
    needs_deliverable: bool
    remembered_box_id: str | None


_REPEATED = "its turn had ended before"


def decide_end(
    found: EndSituation,
    end_status: EndStatus,
    *,
    move: EndMove,
    output_box_id: str | None,
    error_code: str | None = None,
    message: str | None = None,
) -> EndPlan:
    """What is to be written where a turn with this output box is to end so."""
    repeated = found.record is not None and found.record.end_status is not None
    is_success = end_status == "success" and not repeated
    return EndPlan(
        move=move,
        end_status=end_status,
        step_status=COMPLETED if is_success else FAILED,
        error_code=error_code,
        message=_REPEATED if repeated else message,
        is_repeated=repeated,
        needs_deliverable=not repeated and found.deliverable is None,
        remembered_box_id=None if repeated else output_box_id,
    )


# What a diagnosis must know of a turn beside the turn's own rows, as values. Does no I/O.


LossKind = Literal["dangling", "deleted", "expired"]


class Place(msgspec.Struct, frozen=True):
    """A turn and the agent that runs it."""

    agent_turn_id: str
    agent_id: str


class Link(msgspec.Struct, frozen=True):
    """A turn of a cycle, as one that the turn before it waits for. `status` is that of the turn."""

    agent_turn_id: str
    agent_id: str
    status: str


class LostCard(msgspec.Struct, frozen=True):
    """A reference of a box to a card that no reader sees."""

    box_id: str
    card_id: str
    kind: LossKind


class BoxFacts(msgspec.Struct, frozen=True):
    """A box that a turn points to, by the name of the pointer, and what is wrong with it.

    `without_profile`: it is to hold the turn's profile, and holds none that a reader sees.
    """

    pointer: str
    box_id: str
    exists: bool
    lost: tuple[LostCard, ...] = ()
    without_profile: bool = False


class LiveWorker(msgspec.Struct, frozen=True):
    """A worker that is alive, and the project that it serves; None for all."""

    worker_id: str
    worker_target: str
    project_id: str | None


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent of a turn is set up, and who there is to serve it.

    `profile_target` is the worker target of the profile of that name as it is now. `serving` are the live
    workers that serve the project, of whatever target; `elsewhere` those of the agent's target that serve
    another project alone. `archived` is the project's id where it is archived.
    """

    on_roster: bool = True
    profile_name: str | None = None
    profile_target: str | None = None
    serving: tuple[LiveWorker, ...] = ()
    elsewhere: tuple[LiveWorker, ...] = ()
    archived: str | None = None


class Pace(msgspec.Struct, frozen=True):
    """How long 95 of 100 took at most, by the last that ended, up to 100 of them."""

    ended: int
    p95_seconds: float


class ResultCard(msgspec.Struct, frozen=True):
    """A tool.result card of a call, whether or not it was reported."""

    tool_call_id: str
    card_id: str
    created_at: datetime | None


class Child(msgspec.Struct, frozen=True):
    """A turn that another asked for. `tool_call_id` is the call that its end answers, if there is one.

    With others `beside` it, in a batch, it answers the call only together with them.
    """

    agent_turn_id: str
    agent_id: str
    source_turn_id: str
    tool_call_id: str | None
    beside: bool = False
    end_status: str | None = None


class TaskFacts(msgspec.Struct, frozen=True):
    """A child of a batch, as its row says; `turn` is its turn, `due_at` when it is to be dispatched.

    `ended`: how that turn has ended, whether or not the batch knows, and when.
    """

    batch_id: str
    task_index: int | None
    status: str
    turn: str | None
    due_at: datetime | None
    ended: str | None = None
    ended_at: datetime | None = None


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A batch whose end answers a call of a turn. `table` is where it is kept: its own are cbx's to end."""

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
        """Whether cbx goes on with it."""
        return self.table == "cbx.batches"


class Delivered(msgspec.Struct, frozen=True):
    """A deliverable that says that a turn wrote it, in this step."""

    agent_turn_id: str
    card_id: str
    step_id: str | None


class AwaitedCall(msgspec.Struct, frozen=True):
    """A tool call that waits for the end of a turn, and whether a report of it was written."""

    agent_id: str
    agent_turn_id: str
    tool_call_id: str
    wait_status: str | None
    report_status: str | None


class Sharer(msgspec.Struct, frozen=True):
    """A turn that is active and writes to a box."""

    box_id: str
    agent_id: str
    agent_turn_id: str


class Held(msgspec.Struct, frozen=True):
    """A lock as the server lists it. `row` is None for a whole table; `pid` is 0 for a prepared transaction.

    One that is not granted is waited for, and whoever comes later waits behind it.
    """

    table: str
    row: str | None
    mode: str
    granted: bool
    pid: int


class Session(msgspec.Struct, frozen=True):
    """What a database session does. Ages are in seconds; None is what this role may not see.

    `blocked_by` are the sessions that it waits for, `waits_for` the table and `waited` for how long.
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


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock in the way, and the session at the root: it waits for none.

    `row` is None for a whole table; `seconds` is how long it has been in the way, `blocked` how many sessions
    wait for it. `waiting` is the session that holds or wants the lock itself and waits for the root, if that
    is another. `bars_reading`: nobody can read the table.
    """

    table: str
    row: str | None
    mode: str
    session: Session
    seconds: float
    blocked: int
    waiting: Session | None = None
    bars_reading: bool = False
