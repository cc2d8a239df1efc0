"""The StateBuilder: what is stored of a request, and under which ids.

The system prompt, the tools and the layers that a project wants to find again become cards; the history is
cards already and is listed, never copied or inferred from messages. Pure, and holds no prompt text.
"""

from collections.abc import Iterable, Sequence

from cardbox_cli.context.collector import LAYER_KEY
from cardbox_cli.context.request import Request, RequestEntry
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import RENDERED_PROMPT, STORED_LAYER, TOOLS
from cardbox_cli.model.cards import CardDraft, draft_card
from cardbox_cli.model.content import ToolContent
from cardbox_cli.model.ids import derived_id, unique
from cardbox_cli.model.layers import SYSTEM_PROMPT

ASSEMBLER = "system_assembler"


def request_cards(project_id: str, request: Request, *, reproducible: Iterable[str] = ()) -> list[CardDraft]:
    """The cards of what a request holds beside its history; `reproducible` are the layers to keep.

    The same ones make the same cards.
    """
    cards = []
    prompt = request.messages[0] if request.messages else None
    if prompt is not None and prompt.layer == SYSTEM_PROMPT:
        text, profile_id = prompt.body["content"], request.profile_id or ""
        card_id = derived_id(project_id, RENDERED_PROMPT, profile_id, text).hex
        cards.append(_card(RENDERED_PROMPT, text, card_id, profile_id=profile_id))
    if request.tools:
        definitions = exact_json.canonical(exact_json.encode(request.tools)).decode()
        card_id = derived_id(project_id, TOOLS, definitions).hex
        cards.append(_card(TOOLS, ToolContent(request.tools), card_id))
    kept = set(reproducible)
    for layer in request.layers:
        if layer.name in kept:
            card_id = derived_id(project_id, STORED_LAYER, layer.name, layer.text).hex
            cards.append(_card(STORED_LAYER, layer.text, card_id, **{LAYER_KEY: layer.name}))
    return cards


def request_box_ids(cards: Iterable[CardDraft], history: Sequence[RequestEntry]) -> list[str]:
    """The ids of a request box: those cards, then the history that can be read, each once."""
    present = (entry.slot.card_id for entry in history if entry.slot.state == "present")
    return unique([*(card.card_id for card in cards), *present])


def _card(card_type: str, content: ToolContent | str, card_id: str, **metadata: str) -> CardDraft:
    return draft_card(card_type, content, author_id=ASSEMBLER, card_id=card_id, metadata=metadata)
