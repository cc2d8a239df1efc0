"""Agent files of Letta (`.af`): a conversation for each agent, with its tools. Read only."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.parts import data_url, is_text, kind, list_at, list_of, text_at, text_part, texts_in
from cardbox_cli.context.sources import imported_card, mark_failed
from cardbox_cli.conversations.containers.container_entries import (
    container_format,
    may_be_claude,
    message_cards,
    store_entry,
    thinking_block,
)
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable, parse_time
from cardbox_cli.conversations.json_documents import JsonDocuments, load_lazy_lists
from cardbox_cli.conversations.message_lists import is_list, list_items, missing_list_error
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.card_types import TOOLS
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.content import ToolContent
from cardbox_cli.providers.openai.cards import card_of_message
from cardbox_cli.providers.registry import DEFAULT

NAME = "letta"
# `letta.schemas.enums.MessageRole`. An approval is a call that a person must allow, or the person's response.
_ROLES = ("system", "user", "assistant", "tool", "function", "approval", "summary")


def _mark(file: dict[str, Any]) -> str | None:
    agents = file.get("agents") if "blocks" in file or "tools" in file else None
    listed = list_items(agents) if is_list(agents) else ()
    is_one = any(isinstance(each, dict) and "messages" in each for each in listed)
    return "an object has 'agents' with messages, and 'blocks' or 'tools'" if is_one else None


def _read(documents: JsonDocuments) -> Iterator[Conversation]:
    for place, file in documents:
        if not isinstance(file, dict) or not is_list(file.get("agents")):
            raise InvalidConversation(f"{place}: a Letta file must have 'agents'")
        tools = load_lazy_lists(file.get("tools")) or []
        for index, agent in enumerate(file["agents"]):
            where = f"{place}: agents[{index}]"
            lack = missing_list_error("messages", agent, f"{where}: a Letta agent must have messages")
            yield _conversation(agent, tools, where, lack)


def _conversation(
    agent: dict[str, Any], tools: Any, place: str, lack: InvalidConversation | None
) -> Conversation:
    tool_ids, messages = agent.get("tool_ids") or (), agent.get("messages") or ()
    functions = [
        {"type": "function", "function": tool["json_schema"]}
        for tool in tools
        if isinstance(tool, dict) and isinstance(tool.get("json_schema"), dict) and tool.get("id") in tool_ids
    ]
    return Conversation(
        entries=Rereadable(partial(_entries, messages, place)),
        place=place,
        title=text_at(agent, "name"),
        format=NAME,
        request=FileEntry("tools", functions, f"{place}: tools") if functions and messages else None,
        lack=lack,
    )


def _entries(messages: Any, place: str) -> Iterator[FileEntry]:
    for number, message in enumerate(messages):
        where = f"{place}: messages[{number}]"
        if text_at(message, "role") not in _ROLES:
            raise InvalidConversation(f"{where}: a Letta role must be one of {', '.join(_ROLES)}")
        yield FileEntry(str(number), message, where, parse_time(message.get("created_at")))


def _cards(message: dict[str, Any]) -> list[CardDraft]:
    """Make the cards of a message as Letta sends it: a summary as the user's, an approval only as its call.
    Source: `letta.schemas.message.Message`."""
    role, content = message["role"], message.get("content")
    calls = message.get("tool_calls")
    if role == "approval" and not calls:
        return []
    if role in ("tool", "function"):
        cards = _results(message)
    elif role in ("assistant", "approval"):
        called = {"tool_calls": calls} if isinstance(calls, list) and calls else {}
        text = _text(content)
        answer = {"role": "assistant", "content": text or (None if called else ""), **called}
        thoughts = _thoughts(content, text_at(message, "model"))
        cards = [*thoughts, card_of_message(answer)] if called or text or not thoughts else thoughts
    else:
        own = "user" if role == "summary" else role
        cards = [card_of_message({"role": own, "content": _content(content)})]
    return store_entry(cards, message)


def _results(message: dict[str, Any]) -> list[CardDraft]:
    answers = [
        _result(each["tool_call_id"], each.get("func_response"), is_failure=each.get("status") == "error")
        for each in list_at(message, "tool_returns")
        if text_at(each, "tool_call_id")
    ]
    return answers or [_result(text_at(message, "tool_call_id"), message.get("content"), is_failure=False)]


def _result(call_id: str | None, content: Any, *, is_failure: bool) -> CardDraft:
    answered = {"tool_call_id": call_id} if call_id else {}
    card = card_of_message({"role": "tool", **answered, "content": _content(content)})
    return mark_failed(card) if is_failure else card


def _thoughts(content: Any, model: str | None) -> list[CardDraft]:
    """Make the cards of an answer's thinking. Only Claude models keep signatures and redacted data, because
    only their provider can read them."""
    signed = may_be_claude(model)
    blocks: list[dict[str, Any]] = []
    for part in list_of(content):
        match part:
            case {"type": "reasoning", "reasoning": str(text)}:
                blocks.append(thinking_block(text, text_at(part, "signature") if signed else None))
            case {"type": "redacted_reasoning", "data": str(data)} if signed:
                blocks.append({"type": "redacted_thinking", "data": data})
            case {"type": "summarized_reasoning", "summary": [*parts]}:
                blocks.append(thinking_block(texts_in(parts), None))
    return message_cards("assistant", blocks) if blocks else []


def _content(content: Any) -> Any:
    """Return the content of a message: a string, or parts if there are images."""
    parts = list(map(_part, list_of(content)))
    return parts if any(kind(part) != "text" for part in parts) else _text(content)


def _part(part: Any) -> dict[str, Any]:
    source = part.get("source") if kind(part) == "image" else None
    url, data = text_at(source, "url"), text_at(source, "data")
    if data is not None:
        url = data_url(text_at(source, "media_type") or "image/png", data)
    if url is not None:
        return {"type": "image_url", "image_url": {"url": url}}
    return text_part(text_at(part, "text") or f"[{kind(part) or 'part'}]")


def _text(content: Any) -> str:
    """Join the texts of a message, without thoughts, calls and results, which become other cards."""
    return content if isinstance(content, str) else texts_in(list(filter(is_text, list_of(content))))


FORMAT = container_format(
    NAME,
    DEFAULT,
    mark=_mark,
    read=_read,
    cards=_cards,
    request=lambda entry: [imported_card(TOOLS, ToolContent(entry.value))],
)
