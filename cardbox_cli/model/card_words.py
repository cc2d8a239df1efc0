"""What people read of a card: its text with its calls, and a line of that. Pure."""

from cardbox_cli.model.cards import Card, CardDraft, card_text
from cardbox_cli.model.pairing import call_ids
from cardbox_cli.text import one_line

PREVIEW = 80


def preview(card: Card | CardDraft, width: int = PREVIEW) -> str:
    """What a card says, on one line; the calls that it makes when it says nothing."""
    return one_line(full_text(card), width)


def full_text(card: Card | CardDraft) -> str:
    """A card's text and its tool calls, as a person would read them."""
    text = card_text(card.content)
    calls = [_call(call) for call in card.tool_calls] if isinstance(card.tool_calls, list) else []
    return "\n".join(part for part in (text, *calls) if part)


def answers(card: Card) -> str:
    """The tool calls that a card makes or answers, for `--full`."""
    made = call_ids(card)
    return ", ".join(made) if made else (card.tool_call_id or "")


def _call(call: object) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return f"→ {call}"
    return f"→ {function.get('name')}({function.get('arguments')})"
