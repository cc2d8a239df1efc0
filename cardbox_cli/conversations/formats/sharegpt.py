"""ShareGPT's conversations: turns of `from` and `value`, common in training data. Read only.

Calls and their results have no ids: a result belongs to the call before it.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

from cardbox_cli.context.parts import arguments_text, ensure_list, function_call, list_of, text_at
from cardbox_cli.context.provider import MessageShape
from cardbox_cli.context.sources import imported_card
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Format, Rereadable
from cardbox_cli.conversations.formats.chat_messages import (
    chat_card,
    find_evidence,
    list_entries,
    parse_text,
)
from cardbox_cli.conversations.json_documents import JsonDocuments, load_lazy_lists
from cardbox_cli.conversations.message_lists import MessageList, find_messages
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import TOOLS
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.content import ToolContent
from cardbox_cli.providers.registry import DEFAULT

NAME = "sharegpt"
_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "model", "bing", "bard", "claude"), "assistant"),
    "system": "system",
    **dict.fromkeys(("function_call", "tool_call"), "assistant"),
    **dict.fromkeys(("observation", "tool", "function_response", "tool_response"), "tool"),
}
_CALLS = ("function_call", "tool_call")
# The id of each call: its result follows before the next call.
_CALL_ID = "call"
_SYSTEM, _TOOLS = "system", "tools"


def _is_turn(value: Any) -> bool:
    return text_at(value, "from") is not None and "value" in value


_SHAPE = MessageShape("conversations", _is_turn, is_own=True)


def _read(documents: JsonDocuments, *, at: str | None = None) -> Iterator[Conversation]:
    for message_list in find_messages(documents, at, _SHAPE):
        listed = list_of(parse_text(load_lazy_lists(message_list.siblings.get(_TOOLS))))
        tools = [tool for tool in listed if isinstance(tool, dict)]
        request = FileEntry(_TOOLS, tools, f"{message_list.place}: {_TOOLS}") if tools else None
        yield message_list.conversation(NAME, Rereadable(partial(_entries, message_list)), request)


def _entries(message_list: MessageList) -> Iterator[FileEntry]:
    """Yield the system prompt next to the turns, and the turns."""
    prompt = message_list.siblings.get(_SYSTEM)
    if isinstance(prompt, str) and prompt:
        yield FileEntry(_SYSTEM, {"from": _SYSTEM, "value": prompt}, message_list.place)
    yield from list_entries(message_list)


def _draft(entry: FileEntry) -> list[CardDraft]:
    turn = entry.value
    if not _is_turn(turn):
        raise InvalidConversation(f"{entry.place}: a ShareGPT turn must have 'from' and 'value'")
    speaker, value = turn["from"], turn["value"]
    role = _ROLES.get(speaker.lower())
    if role is None:
        raise InvalidConversation(
            f"{entry.place}: unknown speaker {speaker!r} for format {NAME}",
            hint=f"speakers are {', '.join(_ROLES)}",
        )
    text = value if isinstance(value, str) else exact_json.encode(value).decode()
    calls = _calls(value) if speaker.lower() in _CALLS else []
    if calls:
        return [chat_card({"role": role, "content": None, "tool_calls": calls}, NAME)]
    answered = {"tool_call_id": _CALL_ID} if role == "tool" else {}
    return [chat_card({"role": role, **answered, "content": text}, NAME)]


def _calls(value: Any) -> list[dict[str, Any]]:
    """Return the calls of a turn, none if it has no valid call."""
    calls = [call for call in ensure_list(parse_text(value)) if text_at(call, "name")]
    ids = (f"{_CALL_ID}_{number}" if number > 1 else _CALL_ID for number in count(1))
    return [
        function_call(call_id, call["name"], arguments_text(call.get("arguments")))
        for call_id, call in zip(ids, calls, strict=False)
    ]


FORMAT = Format(
    name=NAME,
    provider=DEFAULT,
    keyspace=(NAME,),
    marks=partial(
        find_evidence, _SHAPE, lambda turn: "a message has 'from' and 'value'" if _is_turn(turn) else None
    ),
    fits=_is_turn,
    read=_read,
    draft=_draft,
    draft_request=lambda entry: [imported_card(TOOLS, ToolContent(entry.value))],
)
