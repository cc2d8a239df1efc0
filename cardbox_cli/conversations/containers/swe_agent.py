"""Trajectories of SWE-agent (`.traj`), with a history of chat messages. Read only."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.parts import list_at, text_at
from cardbox_cli.conversations.containers.container_entries import (
    container_format,
    message_cards,
    store_entry,
)
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import JsonDocuments
from cardbox_cli.conversations.message_lists import is_list, list_items, missing_list_error
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.openai.cards import card_of_message
from cardbox_cli.providers.registry import DEFAULT

NAME = "swe-agent"
# The default names of environments: `EnvironmentConfig.name` of SWE-agent 1, and of 0.7.
_UNNAMED = ("main", "swe_main")
_ROLES = ("system", "user", "assistant", "tool")


def _mark(run: dict[str, Any]) -> str | None:
    if is_list(run.get("trajectory")) and is_list(run.get("history")):
        return "an object has 'trajectory' and 'history'"
    attempts = run.get("attempts")
    if is_list(attempts) and any(_mark(each) for each in list_items(attempts) if isinstance(each, dict)):
        return "'attempts' have a 'trajectory' and a 'history'"
    history: Any = run.get("history")
    first = next(iter(history), None) if is_list(history) else None
    is_one = isinstance(first, dict) and "message_type" in first and "role" in first
    return "messages of a 'history' have a 'message_type'" if is_one else None


def _read(documents: JsonDocuments) -> Iterator[Conversation]:
    """Yield the history of each run. If no attempt of the run was chosen, yield those of all attempts."""
    for place, run in documents:
        if not isinstance(run, dict) or _mark(run) is None:
            raise InvalidConversation(f"{place}: a SWE-agent file must have 'trajectory' and 'history'")
        if is_list(run.get("history")):
            yield _conversation(run, place)
            continue
        for index, attempt in enumerate(list_items(run["attempts"])):
            where = f"{place}: attempts[{index}]"
            lack = missing_list_error("history", attempt, f"{where}: a SWE-agent attempt must have a history")
            yield _conversation(attempt, where, lack)


def _conversation(run: dict[str, Any], place: str, lack: InvalidConversation | None = None) -> Conversation:
    environment = text_at(run, "environment")
    return Conversation(
        entries=Rereadable(partial(_entries, run.get("history") or (), place)),
        place=place,
        title=None if environment in _UNNAMED else environment,
        format=NAME,
        siblings={"model": run["model"]} if text_at(run, "model") else {},
        lack=lack,
    )


def _entries(history: Any, place: str) -> Iterator[FileEntry]:
    for number, message in enumerate(history):
        where = f"{place}: history[{number}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            problem = f"the role of a SWE-agent message must be one of {', '.join(_ROLES)}"
            raise InvalidConversation(f"{where}: {problem}")
        yield FileEntry(str(number), message, where)


def _cards(message: dict[str, Any]) -> list[CardDraft]:
    """Make the cards of a message, its thoughts first. A result for several calls answers the first one.
    Source: `sweagent.types.HistoryItem`."""
    chat = {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key) is not None}
    if message["role"] == "tool" and (call_ids := list_at(message, "tool_call_ids")):
        chat["tool_call_id"] = call_ids[0]
    blocks = list_at(message, "thinking_blocks")
    thoughts = message_cards("assistant", blocks) if blocks else []
    return store_entry([*thoughts, card_of_message({"content": None, **chat})], message)


FORMAT = container_format(NAME, DEFAULT, mark=_mark, read=_read, cards=_cards)
