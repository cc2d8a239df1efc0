"""Rollouts of Codex CLI: lines of items of OpenAI's Responses among events of the program. Read only."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.openai_responses.cards import FILES
from cardbox_cli.context.providers.openai_responses.items import NAME as RESPONSES
from cardbox_cli.context.sources import imported_card
from cardbox_cli.conversations.containers.entries import container, entry, objects_in
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.model.card_types import RENDERED_PROMPT
from cardbox_cli.model.cards import CardDraft

NAME = "codex"
_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_PROMPT = "instructions"


def _mark(line: dict[str, Any]) -> str | None:
    is_one = line.get("type") in _TYPES and isinstance(line.get("payload"), dict)
    return f"a line of the type {line['type']!r} has a payload" if is_one else None


def _read(documents: Documents) -> Iterator[Conversation]:
    starts = (line["payload"] for _, line in objects_in(documents) if line.get("type") == "session_meta")
    yield Conversation(
        entries=Rereadable(partial(_entries, documents)),
        place=documents.name,
        own_id=text_at(next((each for each in starts if isinstance(each, dict)), {}), "id"),
        title=None,
        format=NAME,
    )


def _entries(documents: Documents) -> Iterator[FileEntry]:
    """The lines; before one that begins a session the instructions that it names."""
    for number, (place, line) in enumerate(objects_in(documents)):
        if line.get("type") == "session_meta" and (prompt := _prompt(line.get("payload"))):
            yield entry(f"{number}:{_PROMPT}", {_PROMPT: prompt, "timestamp": line.get("timestamp")}, place)
        yield entry(str(number), line, place)


def _prompt(start: Any) -> str | None:
    base = start.get("base_instructions") if isinstance(start, dict) else None
    return text_at(base, "text") or text_at(start, _PROMPT)


def _cards(line: dict[str, Any]) -> list[CardDraft]:
    if text_at(line, _PROMPT):
        return [imported_card(RENDERED_PROMPT, line[_PROMPT])]
    item = line.get("payload")
    if line.get("type") != "response_item" or FILES.problem(item) is not None:
        return []
    return FILES.draft(item)


FORMAT = container(NAME, RESPONSES, mark=_mark, read=_read, cards=_cards)
