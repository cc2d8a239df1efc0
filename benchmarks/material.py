"""What the rows work on: the cards of a conversation with tool calls, of a few hundred bytes each."""

from collections.abc import Iterable
from random import Random

import msgspec

from cardbox_cli.context.messages import standard_body
from cardbox_cli.model.cards import CardDraft, draft_card
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.ids import derived_id
from cardbox_cli.providers.openai.cards import card_of_message

_SENTENCE = (
    "the deploy of the checkout service failed after two minutes because its queue was full and no worker "
    "took orders while customers saw a page that named neither the cause nor the time of a next attempt"
)


def card_ids(count: int) -> list[str]:
    """So many ids of 32 hex digits, the same ones each time."""
    return [derived_id("bench", str(number)).hex for number in range(count)]


def drafts(count: int) -> list[CardDraft]:
    """So many cards under `card_ids(count)`: by turns a question, a thought that calls a tool, its result."""
    chance = Random(1)
    return [_draft(number, card_id, chance) for number, card_id in enumerate(card_ids(count))]


def _draft(number: int, card_id: str, chance: Random) -> CardDraft:
    text = " ".join(chance.choices(_SENTENCE.split(), k=chance.randint(10, 120)))
    call_id, turn = (
        f"call_{number // 3}",
        {"agent_turn_id": f"turn-{number // 30}", "step_id": f"step-{number}"},
    )
    match number % 3:
        case 0:
            return draft_card("task.instruction", text, author_id="sre", card_id=card_id)
        case 1:
            function = {"name": "query_logs", "arguments": '{"service": "checkout", "minutes": 5}'}
            calls = [{"id": call_id, "type": "function", "function": function}]
            return draft_card(
                "agent.thought", text, author_id="agent", card_id=card_id, metadata=turn, tool_calls=calls
            )
        case _:
            result = {"rows": [{"minute": minute, "errors": chance.randint(0, 900)} for minute in range(5)]}
            return draft_card(
                "tool.result",
                ToolResultContent(status="success", after_execution="suspend", result=result),
                author_id="query_logs",
                card_id=card_id,
                metadata=turn,
                tool_call_id=call_id,
            )


def imported_drafts(count: int) -> list[CardDraft]:
    """The cards of `drafts` as an import makes them of messages whose text stands in a list of parts."""
    return [_imported(card) for card in drafts(count)]


def _imported(card: CardDraft) -> CardDraft:
    message = standard_body(card)
    made = card_of_message({**message, "content": [{"type": "text", "text": message["content"]}]})
    return msgspec.structs.replace(made, card_id=card.card_id)


def half_overlapping(ids: list[str], *, boxes: int, size: int) -> Iterable[list[str]]:
    """So many lists of `size` ids, the second half of each being the first half of the next."""
    return (ids[first : first + size] for first in range(0, boxes * size // 2, size // 2))
