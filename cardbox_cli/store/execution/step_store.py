"""The steps of active turns in Postgres. One statement writes all rows of a change.

A statement locks the head first, then boxes, then the rows that it writes. If the fence is outdated, it
writes nothing. A method that is called outside of a transaction is its own transaction.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import CardDraft, check_draft, decode_card
from cardbox_cli.model.execution.turns import HEAD_MOVES, INBOX_MOVES, Fence, Head
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.queries import decode_row


class NewStep(msgspec.Struct, frozen=True, kw_only=True):
    """A new step. `box_card_ids` is the content of its request box. `cards` are the new cards among them."""

    step_id: str
    status: str
    request_box_id: str
    title: str
    box_card_ids: Sequence[str]
    cards: Sequence[CardDraft]
    metadata: Mapping[str, Any]


class TurnStart(msgspec.Struct, frozen=True, kw_only=True):
    """Values to record for a claimed turn: the position of its first own card, and an open step's error."""

    output_start: int
    lost: str


class StepWrite(msgspec.Struct, frozen=True):
    """Outcome of a write: whether the turn is `at_fence`, and whether the rows are `written`.

    If a card could not be stored, `written` is False. `stored` has the ids of the cards that are stored now.
    """

    at_fence: bool
    written: bool
    stored: list[str]


class AnsweredStep(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a step after an answer. `tool_call_ids` are the calls of the answer, or None."""

    step_id: str
    status: str
    tool_call_ids: Sequence[str] | None
    metadata: Mapping[str, Any]


class HeldOutput(msgspec.Struct, frozen=True):
    """The locked head and output box of a turn, and the positions of the box that this turn wrote.

    `has_box` is False if the box is gone. A card that looks dangling may have been written while this
    transaction waited for the lock on the box.
    """

    head: Head
    has_box: bool
    own: list[Slot]


class StepStore(ProjectStore):
    def enter(self, fence: Fence, entering: TurnStart) -> bool:
        """Let the claimed turn run. Returns False if `fence` is outdated."""
        return bool(self._value("enter_turn", **msgspec.structs.asdict(fence), **_entered(entering)))

    def begin(self, fence: Fence, entering: TurnStart, step: NewStep) -> StepWrite:
        """Write all rows of a new step, and let the turn run."""
        named = {"title": step.title} if self.database.keeps_box_info else {}
        row = self._row(
            "begin_step" if named else "begin_step_without_title",
            **msgspec.structs.asdict(fence),
            **_entered(entering),
            **named,
            step_id=step.step_id,
            status=step.status,
            request_box_id=step.request_box_id,
            box_card_ids=jsonb(list(step.box_card_ids)),
            cards=card_columns(step.cards),
            metadata=jsonb(step.metadata),
        )
        assert row is not None
        return StepWrite(*row)

    def hold(self, fence: Fence, output_start: int) -> HeldOutput | None:
        """Lock the head and the output box of a turn. Returns None if `fence` is outdated."""
        rows = self._rows("hold_output", **msgspec.structs.asdict(fence), output_start=output_start)
        if not rows:
            return None
        (_, _, box, head), *places = rows
        own = [
            Slot(output_start + place, card_id, None if state == "dangling" else decode_card(card), state)
            for place, card_id, state, card in places
        ]
        return HeldOutput(decode_row(Head, head), box == "present", own)

    def append(
        self,
        fence: Fence,
        output_start: int,
        cards: Sequence[CardDraft],
        answered: AnsweredStep | None = None,
    ) -> StepWrite:
        """Write cards, append them to the output box unless it has all of them, and update the step."""
        step: dict[str, Any] = {} if answered is None else msgspec.structs.asdict(answered)
        if answered is not None:
            ids = answered.tool_call_ids
            step |= {
                "tool_call_ids": None if ids is None else jsonb(list(ids)),
                "metadata": jsonb(answered.metadata),
            }
        row = self._row(
            "write_answer" if step else "write_own_cards",
            **msgspec.structs.asdict(fence),
            **step,
            output_start=output_start,
            cards=card_columns(cards),
            card_ids=jsonb([card.card_id for card in cards]),
        )
        assert row is not None
        return StepWrite(*row)

    def suspend(
        self, fence: Fence, step_id: str, calls: Mapping[str, str], *, inbox_id: str, wait: timedelta
    ) -> datetime | None:
        """Let the running turn wait for these calls, and consume its row. `calls` has tool names by call id.

        Returns the deadline of the wait, or None if `fence` is outdated.
        """
        move, consume = HEAD_MOVES["suspend"], INBOX_MOVES["consume"]
        deadline: datetime | None = self._value(
            "suspend_turn",
            **msgspec.structs.asdict(fence),
            sources=list(move.sources),
            target=move.target,
            row_sources=list(consume.sources),
            row_target=consume.target,
            step_id=step_id,
            tool_call_ids=list(calls),
            tool_names=list(calls.values()),
            inbox_id=inbox_id,
            delay=wait,
        )
        return deadline


def _entered(entering: TurnStart) -> dict[str, Any]:
    """Return the parameters for entering a turn, with the states of the move of its head."""
    move = HEAD_MOVES["enter"]
    states = {"entered_sources": list(move.sources), "entered_target": move.target}
    return {**msgspec.structs.asdict(entering), **states}


_CARD_COLUMNS = ("card_id", "content", "tool_calls", "tool_call_id", "ttl_seconds", "metadata")


def card_columns(drafts: Sequence[CardDraft]) -> Any:
    """Return cards as a JSON parameter: a list of objects of columns. Raises InvalidCard."""
    for draft in drafts:
        check_draft(draft)
    return jsonb([{name: getattr(draft, name) for name in _CARD_COLUMNS} for draft in drafts])
