"""What a diagnosis must know of a turn beside the turn's own rows, as values. Does no I/O."""

from datetime import datetime
from typing import Literal

import msgspec

LossKind = Literal["dangling", "deleted", "expired"]


class Place(msgspec.Struct, frozen=True):
    """A turn and the agent that runs it."""

    agent_turn_id: str
    agent_id: str


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
    """A turn that another asked for. `tool_call_id` is the call that its end answers, if there is one."""

    agent_turn_id: str
    agent_id: str
    source_turn_id: str
    tool_call_id: str | None
    row_status: str | None
    end_status: str | None


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


class Lock(msgspec.Struct, frozen=True):
    """A lock of another session. `row` is None for a whole table; `seconds` is its transaction's age."""

    table: str
    row: str | None
    mode: str
    pid: int
    application: str | None
    state: str | None
    seconds: float
    blocked: int
