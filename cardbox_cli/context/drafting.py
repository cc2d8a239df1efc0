"""Messages of providers as cards: the way back of `messages` and `formats/`.

Pure. What a card's own fields cannot spell of a message stays in its metadata (`sources`), so that the
message comes out again as it went in. The ids of the drafts are placeholders, and their author is the
importer, until whoever wants them stored says otherwise.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.blocks import call_of_block, is_call, is_result, is_text, kind, text_of
from cardbox_cli.context.formats.anthropic import as_blocks, standard_content
from cardbox_cli.context.messages import standard_body
from cardbox_cli.context.sources import same_json
from cardbox_cli.context.tool_use_ids import ids_in, is_spelled_well
from cardbox_cli.model.cards import CardDraft, draft_card
from cardbox_cli.model.content import Content

AUTHOR = "cbx.import"


def imported_card(card_type: str, content: Content | str, **parts: Any) -> CardDraft:
    """A draft by the importer; its id is a placeholder until its conversation is known."""
    return draft_card(card_type, content, author_id=AUTHOR, card_id="?", **parts)


# --- OpenAI's messages

OPENAI_TYPES = {
    "user": "task.instruction",
    "assistant": "agent.thought",
    "tool": "tool.result",
    "function": "tool.result",
    "system": "sys.rendered_prompt",
    "developer": "sys.rendered_prompt",
}


def card_of_message(message: dict[str, Any]) -> CardDraft:
    """The card that holds an OpenAI `message`; `spoken_body` gives the same message back."""
    role = message["role"]
    name = message.get("name")
    names_function = OPENAI_TYPES[role] == "tool.result" and isinstance(name, str)
    card = imported_card(
        OPENAI_TYPES[role],
        message_text(message),
        role=role,
        metadata={"function_name": name} if names_function else None,
        tool_calls=_tool_calls(message),
        tool_call_id=_tool_call_id(message),
    )
    return card if standard_body(card) == message else keep_message(card, message)


def keep_message(card: CardDraft, message: dict[str, Any]) -> CardDraft:
    """`card`, with `message` as the original that it spells."""
    original = {"source_format": sources.OPENAI, "source_message": message}
    return msgspec.structs.replace(card, metadata={**card.metadata, **original})


def message_text(message: dict[str, Any]) -> str:
    """What a message says in words: its text, or that of its parts, a line each."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _tool_calls(message: dict[str, Any]) -> list[Any] | None:
    calls = message.get("tool_calls")
    return calls if message["role"] == "assistant" and isinstance(calls, list) and calls else None


def _tool_call_id(message: dict[str, Any]) -> str | None:
    call_id = message.get("tool_call_id")
    return call_id if message["role"] == "tool" and isinstance(call_id, str) and call_id else None


# --- Anthropic's messages

# The type of the cards that a stretch of one sort makes.
_TALK = {"user": "task.instruction", "assistant": "agent.thought", "system": "sys.rendered_prompt"}
_RESULT, _REASONING, _ASIDE = "tool.result", "agent.reasoning", "agent.aside"


def content_cards(role: str, content: Any, source_format: str) -> list[CardDraft]:
    """The cards that hold the content of a message, one at least."""
    if not isinstance(content, list) or not content:
        return [imported_card(_TALK[role], text_of(as_list(content)), role=role)]
    return [_stretch_card(sort, role, blocks, source_format) for sort, blocks in _stretches(role, content)]


def _stretches(role: str, content: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The card types and blocks of a content in order; a result and a thought are cards of their own."""
    for sort, run in groupby(content, key=lambda block: _sort(role, block)):
        if sort in (_RESULT, _REASONING):
            yield from ((sort, [block]) for block in run)
        else:
            yield sort, list(run)


def _sort(role: str, block: Any) -> str:
    if role == "user" and is_result(block):
        return _RESULT
    if role != "assistant" or is_text(block) or is_call(block):
        return _TALK[role]
    return _REASONING if kind(block) in ("thinking", "redacted_thinking") else _ASIDE


def _stretch_card(sort: str, role: str, blocks: list[Any], source_format: str) -> CardDraft:
    card = _CARDS.get(sort, _talk_card)(sort, role, blocks)
    spelled = as_blocks(standard_content(card))
    # Ids that Anthropic would refuse are spelled anew on the way out, unless the blocks are kept.
    is_spelled = all(map(is_spelled_well, ids_in(blocks))) and same_json(spelled, blocks)
    return card if is_spelled else keep(card, source_format, source_blocks=blocks)


def _talk_card(sort: str, role: str, blocks: list[Any]) -> CardDraft:
    makes_calls = role == "assistant"
    calls = [call_of_block(block) for block in blocks if makes_calls and is_call(block)]
    said = text_of(block for block in blocks if not (makes_calls and is_call(block)))
    return imported_card(sort, said, role=role, tool_calls=calls or None)


def _result_card(sort: str, role: str, blocks: list[Any]) -> CardDraft:
    [result] = blocks
    return imported_card(sort, text_of(as_list(result.get("content"))), tool_call_id=result["tool_use_id"])


def _reasoning_card(sort: str, role: str, blocks: list[Any]) -> CardDraft:
    [thought] = blocks
    signature = thought.get("signature")
    metadata = {"signature": signature} if isinstance(signature, str) else None
    return imported_card(sort, text_of([thought.get("thinking")]), metadata=metadata)


_CARDS = {_RESULT: _result_card, _REASONING: _reasoning_card}


def keep(card: CardDraft, source_format: str, **source: Any) -> CardDraft:
    """`card` with `source_…` keys in its metadata."""
    return msgspec.structs.replace(card, metadata={**card.metadata, "source_format": source_format, **source})


def as_list(content: Any) -> list[Any]:
    """Content as a list, whatever it is."""
    return content if isinstance(content, list) else [] if content is None else [content]
