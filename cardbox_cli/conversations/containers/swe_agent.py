"""Trajectories of SWE-agent (`.traj`): the history of chat messages in one. Read only."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.registry import DEFAULT
from cardbox_cli.conversations.chat_messages import chat_card
from cardbox_cli.conversations.containers.entries import container
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.files import is_list
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.cards import CardDraft

NAME = "swe-agent"
_ROLES = ("system", "user", "assistant", "tool")


def _mark(run: dict[str, Any]) -> str | None:
    is_one = is_list(run.get("trajectory")) and is_list(run.get("history"))
    return "'trajectory' and 'history' stand side by side" if is_one else None


def _read(documents: Documents) -> Iterator[Conversation]:
    for place, run in documents:
        if not isinstance(run, dict) or _mark(run) is None:
            raise InvalidConversation(f"{place}: a trajectory of SWE-agent has 'trajectory' and 'history'")
        yield Conversation(
            entries=Rereadable(partial(_entries, run["history"], place)),
            place=place,
            own_id=None,
            title=None,
            format=NAME,
            beside={"model": run["model"]} if text_at(run, "model") else {},
        )


def _entries(history: Any, place: str) -> Iterator[FileEntry]:
    for number, message in enumerate(history):
        where = f"{place}: history[{number}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise InvalidConversation(
                f"{where}: a message of SWE-agent has a role, one of {', '.join(_ROLES)}"
            )
        yield FileEntry(str(number), message, where)


def _cards(message: dict[str, Any]) -> list[CardDraft]:
    """The card of a history's message; a result that names several calls answers the first."""
    said = {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key) is not None}
    answered = message.get("tool_call_ids")
    if message["role"] == "tool" and isinstance(answered, list) and answered:
        said["tool_call_id"] = answered[0]
    return [chat_card({"content": None, **said}, NAME, source_message=message)]


FORMAT = container(NAME, DEFAULT, mark=_mark, read=_read, cards=_cards)
