"""Agent files of Letta (`.af`): a conversation for each agent, with its tools. Read only."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.parts import text_at, text_of
from cardbox_cli.context.providers.registry import DEFAULT
from cardbox_cli.context.sources import imported_card
from cardbox_cli.conversations.chat_messages import chat_card
from cardbox_cli.conversations.containers.entries import container
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable, moment
from cardbox_cli.conversations.files import is_list
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.conversations.json_window import held
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.card_types import TOOLS
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.content import ToolContent

NAME = "letta"
_ROLES = ("system", "user", "assistant", "tool")


def _mark(file: dict[str, Any]) -> str | None:
    agents = file.get("agents")
    first = next(iter(agents), None) if agents is not None and is_list(agents) else None
    is_one = isinstance(first, dict) and "messages" in first and ("blocks" in file or "tools" in file)
    return "'agents' with messages stand beside 'blocks' or 'tools'" if is_one else None


def _read(documents: Documents) -> Iterator[Conversation]:
    for place, file in documents:
        if not isinstance(file, dict) or not is_list(file.get("agents")):
            raise InvalidConversation(f"{place}: a file of Letta has 'agents'")
        tools = held(file.get("tools")) or []
        for index, agent in enumerate(file["agents"]):
            yield _conversation(agent, tools, f"{place}: agents[{index}]")


def _conversation(agent: Any, tools: Any, place: str) -> Conversation:
    if not isinstance(agent, dict) or not is_list(agent.get("messages")):
        raise InvalidConversation(f"{place}: an agent of Letta has messages")
    wanted = agent.get("tool_ids")
    own = [tool["json_schema"] for tool in tools if _is_tool(tool) and tool.get("id") in (wanted or ())]
    functions = [{"type": "function", "function": schema} for schema in own]
    return Conversation(
        entries=Rereadable(partial(_entries, agent["messages"], place)),
        place=place,
        own_id=None,
        title=text_at(agent, "name"),
        format=NAME,
        request=FileEntry("tools", functions, f"{place}: tools") if functions else None,
    )


def _is_tool(tool: Any) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("json_schema"), dict)


def _entries(messages: Any, place: str) -> Iterator[FileEntry]:
    for number, message in enumerate(messages):
        where = f"{place}: messages[{number}]"
        if text_at(message, "role") not in _ROLES:
            raise InvalidConversation(f"{where}: a message of Letta has a role, one of {', '.join(_ROLES)}")
        yield FileEntry(str(number), message, where, moment(message.get("created_at")))


def _cards(message: dict[str, Any]) -> list[CardDraft]:
    content = message.get("content")
    text = content if isinstance(content, str) else text_of(content or [])
    said: dict[str, Any] = {"role": message["role"], "content": text}
    if (
        message["role"] == "assistant"
        and isinstance(message.get("tool_calls"), list)
        and message["tool_calls"]
    ):
        said |= {"content": text or None, "tool_calls": message["tool_calls"]}
    if message["role"] == "tool" and text_at(message, "tool_call_id"):
        said["tool_call_id"] = message["tool_call_id"]
    return [chat_card(said, NAME, source_message=message)]


def _tools(entry: FileEntry) -> list[CardDraft]:
    return [imported_card(TOOLS, ToolContent(entry.value))]


FORMAT = container(NAME, DEFAULT, mark=_mark, read=_read, cards=_cards, request=_tools)
