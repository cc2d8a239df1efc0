"""Rollouts of Codex CLI: lines with items of OpenAI's Responses API, and events of the program. Read only.

In older rollouts the lines are the items themselves, after a line with the session's id and among lines of
its state. The oldest are one object of a `session` and its `items`. Sources, in openai/codex: `RolloutItem`
of `codex-rs/protocol/src/protocol.rs`; `codex-cli/src/utils/storage/save-rollout.ts`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.parts import dict_at, text_at
from cardbox_cli.context.sources import imported_card
from cardbox_cli.conversations.containers.container_entries import (
    container_format,
    iterate_objects,
    timed_entry,
)
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Rereadable
from cardbox_cli.conversations.json_documents import JsonDocument, JsonDocuments
from cardbox_cli.conversations.message_lists import is_list
from cardbox_cli.model.card_types import RENDERED_PROMPT
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.openai_responses.cards import NAME as RESPONSES
from cardbox_cli.providers.registry import provider_named

NAME = "codex"
# The types of lines without an item: notes of the program, and summaries of the history.
_EVENTS = (
    *("session_meta", "event_msg", "turn_context", "compacted", "world_state"),
    *("inter_agent_communication", "inter_agent_communication_metadata"),
)
_TYPES = ("response_item", *_EVENTS)
# Items that Codex never sends to a model: `is_api_message` of `codex-rs/core`.
_OWN_ITEMS = ("ghost_snapshot",)
_PROMPT = "instructions"


def _mark(line: dict[str, Any]) -> str | None:
    if line.get("type") in _TYPES and isinstance(line.get("payload"), dict):
        return f"a line of the type {line['type']!r} has a payload"
    if isinstance(line.get("session"), dict) and is_list(line.get("items")):
        return "an object has 'session' and 'items'"
    if line.get("record_type") == "state":
        return "a line has the record_type 'state'"
    is_start = "instructions" in line and "timestamp" in line and "id" in line and "type" not in line
    return "a line has 'id', 'timestamp' and 'instructions'" if is_start else None


def _lines(documents: JsonDocuments) -> Iterator[JsonDocument]:
    """Yield the lines of a rollout. An object becomes a line for its session, and one for each item."""
    for place, line in iterate_objects(documents):
        session, items = line.get("session"), line.get("items")
        if isinstance(session, dict) and isinstance(items, list):
            yield JsonDocument(place, session)
            for index, item in enumerate(items):
                value = item if isinstance(item, dict) else {"item": item}
                yield JsonDocument(f"{place}: items[{index}]", value)
        else:
            yield JsonDocument(place, line)


def _session(line: dict[str, Any]) -> dict[str, Any] | None:
    """Return the description of the session if the line begins one, None for any other line."""
    if line.get("type") == "session_meta":
        start = line.get("payload")
        return start if isinstance(start, dict) else None
    is_old = "type" not in line and "timestamp" in line and text_at(line, "id") is not None
    return line if is_old else None


def _read(documents: JsonDocuments) -> Iterator[Conversation]:
    starts = (start for _, line in _lines(documents) if (start := _session(line)) is not None)
    yield Conversation(
        entries=Rereadable(partial(_entries, documents)),
        place=documents.name,
        own_id=text_at(next(starts, None), "id"),
        format=NAME,
    )


def _entries(documents: JsonDocuments) -> Iterator[FileEntry]:
    """Yield the lines, with the instructions of a session before its first line."""
    for number, (place, line) in enumerate(_lines(documents)):
        start = _session(line)
        if prompt := text_at(dict_at(start, "base_instructions"), "text") or text_at(start, _PROMPT):
            value = {_PROMPT: prompt, "timestamp": line.get("timestamp")}
            yield timed_entry(f"{number}:{_PROMPT}", value, place)
        yield timed_entry(str(number), line, place)


def _cards(line: dict[str, Any]) -> list[CardDraft]:
    if line.keys() == {_PROMPT, "timestamp"}:
        return [imported_card(RENDERED_PROMPT, line[_PROMPT])]
    item = line.get("payload") if line.get("type") in _TYPES else line
    files = provider_named(RESPONSES).files
    is_event = line.get("type") in _EVENTS or text_at(item, "type") in _OWN_ITEMS
    return [] if is_event or files.problem(item) is not None else files.draft(item)


FORMAT = container_format(NAME, RESPONSES, mark=_mark, read=_read, cards=_cards, holds=(RESPONSES,))
