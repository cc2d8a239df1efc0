"""Cards that stand for others in a mended box: what each leaves out or says otherwise.

Pure. A card is never changed: each of these is a new one that names the old in `metadata.edited_from`, and
remembers no imported original, so that what is sent is what it says.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.edits import edited_card
from cardbox_cli.context.parts import text_at
from cardbox_cli.context.tool_calls import arguments_of, arguments_text, input_of
from cardbox_cli.model.card_types import INSTRUCTION, TOOL_RESULT, card_type
from cardbox_cli.model.cards import Card, CardDraft, card_text, draft_card
from cardbox_cli.model.content import Content, TextContent, ToolResultContent

# The code of the error in a result that stands for one that never came.
INTERRUPTED = "interrupted"
_NO_RESULT = "The call was interrupted: no result was recorded."
_BEGINNING = "(What was said before is not kept.)"


def rewritten(card: Card, author_id: str, *, content: Content | None = None) -> CardDraft | None:
    """The card with other content, or as its own fields have it; None where it cannot be written so."""
    wanted = content or card.content
    if wanted is None or isinstance(wanted, dict):
        return None
    return edited_card(card, wanted, author_id=author_id)


def plain(card: Card, author_id: str) -> CardDraft | None:
    """The card without its imported original; None for one that has none, or says nothing without it."""
    if not sources.originals(card) or not (card_text(card.content).strip() or card.tool_calls):
        return None
    return rewritten(card, author_id)


def without_calls(card: Card, calls: Collection[int], author_id: str) -> CardDraft | None:
    """The card without its calls of these indexes; None where nothing is left of it."""
    kept = [call for index, call in enumerate(_calls(card)) if index not in calls]
    draft = rewritten(card, author_id) if kept or card_text(card.content).strip() else None
    return None if draft is None else msgspec.structs.replace(draft, tool_calls=kept or None)


def with_arguments(card: Card, author_id: str) -> CardDraft | None:
    """The card with an object as the arguments of each call; what was none stands in it as `_raw`.

    None where all of them are objects.
    """
    calls = [_with_object(call) for call in _calls(card)]
    draft = rewritten(card, author_id) if calls != card.tool_calls else None
    return None if draft is None else msgspec.structs.replace(draft, tool_calls=calls)


def with_call_id(card: Card, index: int, call_id: str, author_id: str) -> CardDraft | None:
    """The card with another id for its call of this index."""
    draft = rewritten(card, author_id)
    calls = [{**call, "id": call_id} if at == index else call for at, call in enumerate(_calls(card))]
    return None if draft is None else msgspec.structs.replace(draft, tool_calls=calls)


def with_answered_id(card: Card, call_id: str, author_id: str) -> CardDraft | None:
    """The result as that of the call of this id."""
    draft = rewritten(card, author_id)
    return None if draft is None else msgspec.structs.replace(draft, tool_call_id=call_id)


def with_role(card: Card, author_id: str) -> CardDraft | None:
    """The card with the role that its type has; None where it has that."""
    role = card_type(card.type).role
    draft = rewritten(card, author_id) if card.role != role else None
    return (
        None if draft is None else msgspec.structs.replace(draft, metadata={**draft.metadata, "role": role})
    )


def trimmed(card: Card, author_id: str) -> CardDraft | None:
    """The card without white space at the end of its text; None where there is none, or no more than that."""
    text = card_text(card.content)
    short = text.rstrip()
    return rewritten(card, author_id, content=TextContent(short)) if short and short != text else None


def interrupted(call: Any, author_id: str) -> CardDraft:
    """The result of a call that has none: it says that the call was interrupted."""
    error = {"code": INTERRUPTED, "message": _NO_RESULT}
    name = text_at(call.get("function"), "name")
    return draft_card(
        TOOL_RESULT,
        ToolResultContent("failed", "suspend", error=error),
        author_id=author_id,
        metadata={} if name is None else {"function_name": name},
        tool_call_id=call["id"],
    )


def beginning(author_id: str) -> CardDraft:
    """What stands for the beginning of a conversation that begins with an answer."""
    return draft_card(INSTRUCTION, _BEGINNING, author_id=author_id)


def _calls(card: Card) -> list[Any]:
    return card.tool_calls if isinstance(card.tool_calls, list) else []


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    given = function.get("arguments")
    if isinstance(given, str) and given.strip() and arguments_of(given) is not None:
        return call
    return {**call, "function": {**function, "arguments": arguments_text(input_of(given))}}
