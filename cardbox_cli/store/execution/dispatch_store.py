"""Dispatch, promotion and end of turns. One query reads all facts of a decision, one writes all rows.

Methods run in the caller's transaction. A read locks the agent's head first, then rows of the inbox, then
boxes. It does not see commits that happened while it waited for a lock. So a write checks the facts of the
decision again, and writes nothing if they have changed. Then the caller must read again.
"""

from datetime import datetime

import msgspec

from cardbox_cli.model.execution.situations import (
    DispatchSituation,
    EndPlan,
    EndSituation,
    PromotionSituation,
)
from cardbox_cli.model.execution.turns import HEAD_MOVES, Edge, Fence, InboxRow
from cardbox_cli.model.ids import canonical_box_id
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import NO_BOX, ProjectStore
from cardbox_cli.store.connection.queries import decode_row
from cardbox_cli.store.execution.head_store import assignment_values
from cardbox_cli.store.execution.inbox_store import row_parameters

_PROJECTS = "public.projects"


class NewTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a new turn. With `assigns`, the agent is assigned to the turn at once.

    `row` has the resulting status and epoch. With `makes_box`, the output box is new. `output_start` is the
    position in that box at which the cards of this turn begin. It is None while the turn is queued.
    """

    row: InboxRow
    edge: Edge
    report_to: dict[str, str] | None
    assigns: bool
    makes_box: bool
    output_start: int | None


class TurnWrite(msgspec.Struct, frozen=True):
    """Outcome of a write. `still_so` is True if the facts of the decision have not changed.

    `written` is False if an id was taken. `queue_position` is the position of a queued turn, from 1.
    """

    still_so: bool
    written: bool
    queue_position: int


class DispatchStore(ProjectStore):
    """The dispatched turns of one project's agents."""

    def situation(
        self,
        agent_id: str,
        *,
        context_box_id: str | None,
        output_box_id: str | None,
        profile_box_id: str | None,
        correlation_id: str | None,
        source_agent_id: str,
        parent_turn_id: str | None,
        hold: bool,
    ) -> DispatchSituation | None:
        """Return the facts that decide on a dispatch, or None for an unknown agent. `hold` locks the rows."""
        name = "dispatch_situation" if hold else "dispatch_outlook"
        context, output = canonical_box_id(context_box_id or ""), canonical_box_id(output_box_id or "")
        situation = self._facts(
            DispatchSituation,
            name if _PROJECTS in self.database.tables else f"{name}_without_projects",
            agent_id=agent_id,
            context_box_id=context or (context_box_id and NO_BOX) or None,
            output_box_id=output or (output_box_id and NO_BOX) or None,
            profile_box_id=canonical_box_id(profile_box_id) or NO_BOX if profile_box_id else None,
            correlation_id=correlation_id,
            source_agent_id=source_agent_id,
            parent_turn_id=parent_turn_id,
        )
        return situation and msgspec.structs.replace(situation, context_box_id=context, output_box_id=output)

    def write(self, turn: NewTurn) -> TurnWrite:
        """Write all rows of a turn, or none."""
        outcome = self._row(
            "write_turn" if self.database.keeps_turns else "write_turn_without_record",
            **(row_parameters(turn.row, turn.edge) | assignment_values(turn.row)),
            output_start=turn.output_start,
            report_to=None if turn.report_to is None else jsonb(turn.report_to),
            assigns=turn.assigns,
            makes_box=turn.makes_box,
        )
        assert outcome is not None
        return TurnWrite(*outcome)

    def promotion(self, agent_id: str) -> PromotionSituation | None:
        """Return the facts that decide on a promotion, or None if the agent is busy or has no queued turn."""
        keeps = self.database.keeps_turns
        name = "promotion_situation" if keeps else "promotion_situation_without_records"
        return self._facts(PromotionSituation, name, agent_id=agent_id)

    def promote(self, situation: PromotionSituation) -> InboxRow | None:
        """Assign the agent to its queued turn. Returns the new row, or None if that is no longer possible."""
        promoted = self._value(
            "promote_turn" if self.database.keeps_turns else "promote_turn_without_record",
            **assignment_values(situation.row),
            now=situation.now,
            inbox_id=situation.row.inbox_id,
            output_start=situation.output_start,
            makes_box=not situation.has_output_box,
        )
        return None if promoted is None else decode_row(InboxRow, promoted)

    def output_user(self, output_box_id: str, agent_id: str) -> tuple[str, str] | None:
        """Return the turn and agent if an unfinished turn of another agent writes to this box, or None."""
        row = self._row("output_user", output_box_id=output_box_id, agent_id=agent_id)
        return None if row is None else (row[0], row[1])


class EndStore(ProjectStore):
    """The ends of one project's turns. The caller has locked the head."""

    def situation(self, fence: Fence) -> EndSituation:
        """Return the facts that decide on the end of the turn that `fence` identifies."""
        situation = self._facts(EndSituation, "end_situation", **msgspec.structs.asdict(fence))
        assert situation is not None
        return situation

    def write(
        self, fence: Fence, plan: EndPlan, deliverable_card_id: str | None, now: datetime
    ) -> int | None:
        """Write all rows of an end. Returns the epoch after the end, or None if `fence` is outdated."""
        move = HEAD_MOVES[plan.move]
        epoch: int | None = self._value(
            "write_end",
            **msgspec.structs.asdict(fence),
            **msgspec.structs.asdict(plan),
            sources=list(move.sources),
            epoch=move.epoch,
            now=now,
            deliverable_card_id=deliverable_card_id,
            error=plan.message,
            output_box_id=plan.remembered_box_id,
        )
        return epoch
