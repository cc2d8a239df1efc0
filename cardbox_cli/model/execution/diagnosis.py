"""What a diagnosis must know of a turn beside the turn's own rows, as values. Does no I/O."""

from datetime import datetime
from typing import Literal

import msgspec

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
