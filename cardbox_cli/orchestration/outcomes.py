"""What came of turns, side by side: how each ended, in how many steps, for what, in which words.

Reads what turns left. Tokens are those that providers reported, where they did; what was written is
estimated.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from cardbox_cli.context.request import TURN
from cardbox_cli.execution.requests.request import present_cards
from cardbox_cli.execution.tool_calls import calls_of
from cardbox_cli.execution.views.turn_page import summary
from cardbox_cli.model.card_types import DELIVERABLE, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.diff.texts import Piece, text_diff
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.tokens import card_tokens
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.execution.turns import TurnStore
from cardbox_cli.store.views.turns import TurnViews

# How providers name what they counted, of the request and of the answer.
_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")


class TurnOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a turn. `input_tokens` and `output_tokens` are None where no provider reported any;
    `written_tokens`, of what the turn wrote and of the results that it got, are estimated.

    `tools` says how often each was called.
    """

    agent_turn_id: str
    agent_id: str
    status: str
    end_status: str | None
    error: str | None
    steps: int
    input_tokens: int | None
    output_tokens: int | None
    written_tokens: int
    tools: dict[str, int]
    text: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome beside that of the first turn: `same_text`, or so many words that are added and removed."""

    outcome: TurnOutcome
    same_end: bool
    same_text: bool
    words_added: int
    words_removed: int
    pieces: list[Piece]


def outcome_of(turns: TurnViews, agent_turn_id: str) -> TurnOutcome:
    """What came of a turn so far. Raises NotFound. Takes part in the caller's snapshot."""
    found = turns.get(agent_turn_id)
    short = summary(found)
    store = TurnStore(turns.database, turns.project_id)
    steps, record = store.steps(agent_turn_id), store.record(agent_turn_id)
    own = _own_cards(turns, found.output_box_id, record.output_start or 0 if record else 0, agent_turn_id)
    return TurnOutcome(
        agent_turn_id=agent_turn_id,
        agent_id=short.agent_id,
        status=short.status,
        end_status=short.end_status,
        error=record.error if record else None,
        steps=len(steps),
        input_tokens=_reported(steps, _INPUT),
        output_tokens=_reported(steps, _OUTPUT),
        written_tokens=sum(card_tokens(card) for card in own if card.type in (THOUGHT, TOOL_RESULT)),
        tools=dict(Counter(call.tool_name for card in own for call in calls_of(card))),
        text=_text(own, short.deliverable_card_id),
    )


def compare(first: TurnOutcome, others: Sequence[TurnOutcome]) -> list[Compared]:
    """The others beside the first."""
    return [_compared(first, each) for each in others]


def _compared(first: TurnOutcome, other: TurnOutcome) -> Compared:
    pieces = text_diff(first.text, other.text)
    return Compared(
        outcome=other,
        same_end=first.end_status == other.end_status,
        same_text=first.text == other.text,
        words_added=_words(pieces, "added"),
        words_removed=_words(pieces, "removed"),
        pieces=pieces,
    )


def _words(pieces: Sequence[Piece], kind: str) -> int:
    return sum(len(piece.text.split()) for piece in pieces if piece.kind == kind)


def _own_cards(turns: TurnViews, box_id: str | None, start: int, agent_turn_id: str) -> list[Card]:
    """What the turn itself wrote: what goes on from a step of another begins with that one's cards."""
    boxes = BoxStore(turns.database, turns.project_id)
    slots = boxes.slots(box_id) if box_id is not None and boxes.existing([box_id]) else []
    own = present_cards(slots[start:])
    return [card for card in own if card.metadata.get(TURN, agent_turn_id) == agent_turn_id]


def _text(own: Sequence[Card], deliverable: str | None) -> str:
    """What it delivered; without that, what it said last."""
    delivered = [card for card in own if card.type == DELIVERABLE and card.card_id == deliverable]
    said = [card for card in own if card.type == THOUGHT and card_text(card.content)]
    last = (delivered or said)[-1:]
    return card_text(last[0].content) if last else ""


def _reported(steps: Sequence[Step], names: Sequence[str]) -> int | None:
    """What the provider counted in all steps; None where it counted in none."""
    usages = [step.metadata.get("llm_usage") for step in steps if isinstance(step.metadata, dict)]
    counts = [usage.get(name) for usage in usages if isinstance(usage, dict) for name in names]
    known = [count for count in counts if isinstance(count, int) and not isinstance(count, bool)]
    return sum(known) if known else None
