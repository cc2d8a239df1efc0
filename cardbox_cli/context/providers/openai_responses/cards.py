"""OpenAI's items as cards, and back, exactly: where a file has them, and by what it is known."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from cardbox_cli.context import sources
from cardbox_cli.context.messages import never_a_message
from cardbox_cli.context.other_calls import answering
from cardbox_cli.context.parts import kind, text_at
from cardbox_cli.context.providers.openai_responses.items import (
    KINDS,
    NAME,
    PARTING,
    PARTS,
    kind_of,
    role_of_item,
)
from cardbox_cli.context.providers.openai_responses.requests import read_request
from cardbox_cli.context.providers.parted import draft_parts, own_parts, parts_of
from cardbox_cli.context.providers.provider import Body, MessageFiles, MessageShape
from cardbox_cli.context.providers.turns import role_of
from cardbox_cli.context.sources import imported_card, keep
from cardbox_cli.model.card_types import INSTRUCTION, RENDERED_PROMPT
from cardbox_cli.model.cards import Card, CardDraft, card_text

_INPUT, _INSTRUCTIONS = "input", "instructions"
_ROLES = ("user", "assistant", "system", "developer")
# Keys that stand only in a request to the Responses.
_OWN_KEYS = (_INSTRUCTIONS, "previous_response_id", "max_output_tokens", "truncation")
# Keys that others have, too, and the values that they have there alone.
_OWN_VALUES: Mapping[str, Callable[[Any], bool]] = {
    "prompt": lambda value: text_at(value, "id") is not None,
    "conversation": lambda value: text_at(value, "id") is not None or str(value).startswith("conv_"),
    "reasoning": lambda value: isinstance(value, dict),
    "text": lambda value: isinstance(value, dict),
    "background": lambda value: isinstance(value, bool),
    "max_tool_calls": lambda value: isinstance(value, int),
}
_KINDS = frozenset(KINDS)
# The types of parts that no chat message has.
_OWN_PARTS = PARTS[:4]
# The keys of a whole run of items, which is one message of the assistant's.
_ITEMS = "items"


def _gather(items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """The items, those of the assistant's that stand side by side as one message."""
    numbered = enumerate(items)
    for is_assistants, run in groupby(numbered, key=lambda each: _is_assistants(each[1])):
        if is_assistants:
            (number, first), *others = run
            yield number, {_ITEMS: [first, *(item for _, item in others)]}
        else:
            yield from run


def _is_assistants(item: Any) -> bool:
    return role_of_item(item) == "assistant" and _is_item(item)


def _run(message: Any) -> list[Any] | None:
    """The items that were gathered as one message; None for what is one item."""
    return message.get(_ITEMS) if isinstance(message, dict) and len(message) == 1 else None


def _draft(message: Any) -> list[CardDraft]:
    if isinstance(message, str):
        return [keep(imported_card(INSTRUCTION, message), NAME, source_message={_INPUT: message})]
    items = _run(message) or [message]
    role = role_of_item(items[0])
    cards = draft_parts(PARTING, role, items)
    if role != "system":
        return cards
    # Kept in any case: what is no item makes the instructions.
    return [_with_role(keep(card, NAME, source_blocks=items), items[0]) for card in cards]


def _with_role(card: CardDraft, item: Body) -> CardDraft:
    card.metadata["role"] = item["role"]
    return card


def _draft_system(key: str, value: Any) -> CardDraft:
    if isinstance(value, str):
        return imported_card(RENDERED_PROMPT, value)
    return keep(imported_card(RENDERED_PROMPT, ""), NAME, source_message={key: value})


def _export(cards: Iterable[Card]) -> tuple[Body, Iterator[Any]]:
    """The instructions, and the items; the one text that a request may be instead is given as it is."""
    prompts = [card for card in cards if _is_prompt(card)]
    kept = sources.envelope(prompts[0], NAME, sources.MESSAGE) if len(prompts) == 1 else None
    texts = [card_text(card.content) for card in prompts]
    beside = kept or ({_INSTRUCTIONS: "\n\n".join(texts)} if texts else {})
    sent = (card for card in answering(cards) if not _is_prompt(card) and never_a_message(card) is None)
    return beside, _items(sent)


def _is_prompt(card: Card) -> bool:
    if never_a_message(card) is not None or role_of(card) != "system":
        return False
    return own_parts(PARTING, card) is None


def _items(cards: Iterable[Card]) -> Iterator[Any]:
    before: str | None = None
    for number, card in enumerate(cards):
        text = (sources.envelope(card, NAME, sources.MESSAGE) or {}).get(_INPUT)
        if number == 0 and isinstance(text, str):
            before = text
            continue
        if before is not None:
            yield {"role": "user", "content": before}
            before = None
        yield from parts_of(PARTING, card)
    if before is not None:
        yield before


def _is_item(value: Any) -> bool:
    if not isinstance(value, dict) or _is_chat(value):
        return False
    return kind(value) in _KINDS if "type" in value else value.get("role") in _ROLES


def _is_chat(value: Any) -> bool:
    """Whether it is a message of chat completions alone."""
    return isinstance(value, dict) and ("tool_calls" in value or value.get("role") in ("tool", "function"))


def _marks_message(item: Any) -> str | None:
    """What tells an item from a message of another format."""
    if not _is_item(item):
        return None
    if (name := kind(item)) and name != "message":
        return f"an item is of type {name!r}"
    content = item.get("content")
    if not isinstance(content, list):
        return None
    found = next((name for name in map(kind, content) if name in _OWN_PARTS), None)
    return None if found is None else f"a part is of type {found!r}"


def _marks_beside(beside: Mapping[str, Any]) -> str | None:
    given = beside.get(_INPUT)
    if "messages" in beside or not (isinstance(given, str) or given is not None):
        return None
    if not isinstance(given, str) and any(map(_is_chat, given)):
        return None
    if not isinstance(given, str) and not all(map(_is_item, given)):
        return None
    owned = (key for key, is_own in _OWN_VALUES.items() if key in beside and is_own(beside[key]))
    found = next((key for key in _OWN_KEYS if key in beside), None) or next(owned, None)
    if found is not None:
        return f"{found!r} stands beside 'input'"
    return "'input' stands beside 'model'" if isinstance(beside.get("model"), str) else None


def _problem(item: Any) -> str | None:
    """What keeps a value from being an item."""
    if isinstance(item, str):
        return None
    if (run := _run(item)) is not None:
        return next(filter(None, map(_problem, run)), None)
    name = kind_of(item)
    if not name or _is_chat(item):
        return "an item has a type, or a role of OpenAI's Responses, and is no message of chat completions"
    if name == "message" and text_at(item, "role") not in _ROLES:
        return f"the role {item.get('role')!r} is none of OpenAI's: roles are {', '.join(_ROLES)}"
    return None


FILES = MessageFiles(
    keyspace=(NAME,),
    roles=_ROLES,
    shape=MessageShape(key=_INPUT, is_message=_is_item, is_own=True, takes_text=True),
    marks_beside=_marks_beside,
    marks_message=_marks_message,
    system_keys=(_INSTRUCTIONS,),
    gather=_gather,
    gathered=lambda message: _run(message) or [message],
    problem=_problem,
    draft=_draft,
    draft_system=_draft_system,
    keep_original=lambda changed, original: keep(changed, NAME, source_blocks=parts_of(PARTING, original)),
    export=_export,
    read_request=read_request,
    taken_apart=("reasoning", "text"),
    endpoints=("/responses",),
    request_keys=(_INPUT, _INSTRUCTIONS, "previous_response_id"),
    parameters=(
        *("max_output_tokens", "reasoning", "text", "previous_response_id", "conversation", "truncation"),
        "include",
    ),
)
