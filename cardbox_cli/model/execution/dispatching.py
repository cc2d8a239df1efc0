"""What decides on a request for a turn, on the promotion of a queued one, and on a claimed row: what one read
finds.

Does no I/O.
"""

from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.limits import EARLIEST
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.headers import Lineage, lineage_of
from cardbox_cli.model.execution.turns import Head, InboxRow, Lease, WaitingTool


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
