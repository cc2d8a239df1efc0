"""What editing a card means: the text that a person gets to edit, and the card that the edited text makes.

Pure. Cards are immutable, so an edited card is a new one that names the old in `metadata.edited_from`.
Nothing in it remembers an imported original, so that what is rendered is what was edited.
"""

import json
from collections.abc import Sequence

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.errors import InvalidCard, InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, CardDraft, check_draft
from cardbox_cli.model.content import Content, TextContent, parse_content
from cardbox_cli.model.ids import new_card_id

# The key in the metadata of a card that names the one that it stands for.
EDITED_FROM = "edited_from"
# What every card is given anew.
_OWN = frozenset({"type", "role", "author_id", "project_id", "created_at"})


def editable_text(card: Card) -> str:
    """The text of a card that says text, else its content as JSON.

    Raises InvalidCard for content of a class that cbx cannot write.
    """
    content = card.content
    if isinstance(content, TextContent):
        return content.text
    if content is None or isinstance(content, dict):
        held = "no content" if content is None else f"content of class {content.get('__type__')!r}"
        raise InvalidCard(
            f"card {card.card_id!r} holds {held}, which cbx cannot write",
            hint="add a new card with `cbx card add` instead",
        )
    return msgspec.json.format(exact_json.encode(content).decode(), indent=2)


def edited_content(card: Card, text: str, source: str) -> Content:
    """The content that the edited `text` is. Raises InvalidInput naming `source` and the place."""
    if isinstance(card.content, TextContent):
        return TextContent(text)
    try:
        return parse_content(exact_json.read(text))
    except json.JSONDecodeError as exc:
        raise InvalidInput(f"{source}:{exc.lineno}:{exc.colno}: not JSON: {exc.msg}") from exc
    except InvalidCard as exc:
        raise InvalidCard(f"{source}: {exc.message}", hint=exc.hint) from exc
    except ValueError as exc:
        raise InvalidInput(f"{source}: {exc}") from exc


def edited_card(card: Card, content: Content, *, author_id: str) -> CardDraft:
    """The card that stands for `card` with other content. Raises InvalidCard for what cannot be stored."""
    dropped = _OWN.union(sources.originals(card))
    own = {"type": card.type, "role": card.role, "author_id": author_id, EDITED_FROM: card.card_id}
    draft = CardDraft(
        card_id=new_card_id(),
        content=content,
        metadata={
            **{key: value for key, value in card.metadata.items() if key not in dropped},
            **{key: value for key, value in own.items() if value is not None},
        },
        tool_calls=card.tool_calls,
        tool_call_id=card.tool_call_id,
        ttl_seconds=card.ttl_seconds,
    )
    check_draft(draft)
    return draft


def replaced(card_ids: Sequence[str], old: str, new: str) -> list[str]:
    """`card_ids` with `new` at each place of `old`."""
    return [new if card_id == old else card_id for card_id in card_ids]
