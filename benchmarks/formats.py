"""Conversation files in and out, in process: a file as cards, and cards as a file.

The peer of an import is the least that no import does without. The peer of an export is `json.loads` of the
same file: it finds no messages, checks nothing and derives no ids.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from benchmarks.measure import Row, Side, at_most
from benchmarks.workbench import PROJECT, Workbench
from cardbox_cli.conversations.conversation_cards import drafts_of
from cardbox_cli.conversations.formats.registry import choose_format, find_exporter
from cardbox_cli.conversations.json_documents import JsonDocuments, JsonSource
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, CardDraft, draft_as_card
from cardbox_cli.model.ids import DerivedIds, derive_id

_EXCHANGES = 250
# Words of a message, and of what a tool answers.
_WORDS = 400
_ROUNDS = 20


def _chat() -> list[dict[str, Any]]:
    """Questions, calls, their results and answers, in the chat form."""
    messages: list[dict[str, Any]] = []
    for number in range(_EXCHANGES):
        text = f"Number {number}: " + "all quiet on the western front " * (_WORDS // 6)
        function = {"name": "look", "arguments": f'{{"number":{number}}}'}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": text},
            {"role": "assistant", "content": text},
        ]
    return messages


def _exported(name: str) -> bytes:
    """The same as a file of a format that is written."""
    cards = _cards(exact_json.encode({"messages": _chat()}))
    return "".join(find_exporter(name)(cards)).encode()


def _turns() -> bytes:
    """The same as ShareGPT's turns, without the calls."""
    names = {"user": "human", "assistant": "gpt"}
    said = [each for each in _chat() if each["role"] in names and "tool_calls" not in each]
    turns = [{"from": names[each["role"]], "value": each["content"]} for each in said]
    return json.dumps({"conversations": turns}).encode()


def _span() -> bytes:
    """The same as the attributes of a span, without the calls."""
    said = [each for each in _chat() if each["role"] != "tool" and "tool_calls" not in each]
    messages = [
        {"role": each["role"], "parts": [{"type": "text", "content": each["content"]}]} for each in said
    ]
    return json.dumps({"attributes": {"gen_ai.input.messages": messages}}).encode()


@contextmanager
def _file(data: bytes) -> Iterator[BinaryIO]:
    with TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file


def _drafts(file: BinaryIO) -> list[CardDraft]:
    """The cards that importing a file writes, which is taken as whatever it is."""
    documents = JsonDocuments(JsonSource(file, "file"))
    found = choose_format(None, documents).format
    return [
        draft
        for conversation in found.read(documents)
        for drafted in drafts_of(conversation, PROJECT)
        for draft in drafted.cards
    ]


def _cards(data: bytes) -> list[Card]:
    with _file(data) as file:
        return [draft_as_card(draft, PROJECT) for draft in _drafts(file)]


def _whole(file: BinaryIO) -> bytes:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _least(file: BinaryIO) -> list[str]:
    """The ids of the messages of a file, by the least that no import does without, and with no card made.

    That is reading that finds a key twice, the canonical form that ids are made of, and two hashes of it:
    the conversation's and the card's.
    """
    document = exact_json.read(_whole(file).decode(), exact_json.strict_reader)
    canonical = [exact_json.canonical_of_simple(each) for each in _messages(document)]
    ids = DerivedIds(PROJECT, str(derive_id(canonical)))
    return [ids.hex(str(number), each) for number, each in enumerate(canonical)]


def _messages(document: Any) -> list[Any]:
    """The messages of a file, which is their list or has it as its only content."""
    while isinstance(document, dict):
        (document,) = document.values()
    found: list[Any] = document
    return found


@contextmanager
def _importing(_: Workbench, made: Callable[[], bytes]) -> Iterator[tuple[Side, Side]]:
    with _file(made()) as file:
        yield Side(run=lambda: _drafts(file)), Side(run=lambda: _least(file))


@contextmanager
def _exporting(_: Workbench, name: str) -> Iterator[tuple[Side, Side]]:
    data = _exported(name)
    cards, export = _cards(data), find_exporter(name)
    with _file(data) as file:
        yield Side(run=lambda: "".join(export(cards))), Side(run=lambda: json.loads(_whole(file)))


_WRITTEN = ("openai", "openai-responses", "gemini", "bedrock-converse", "langchain")
_FILES: dict[str, Callable[[], bytes]] = {
    **{name: partial(_exported, name) for name in _WRITTEN},
    "sharegpt": _turns,
    "otel": _span,
}

ROWS = [
    *(
        Row(
            name=f"import-{name}",
            what=f"a conversation of 1,000 messages in the format {name} as cards with their ids",
            against="the least that no import does without: a strict reading, the canonical form, two hashes",
            felt_by=f"a person who imports conversations in the format {name}",
            target=at_most(3),
            rounds=_ROUNDS,
            prepare=partial(_importing, made=made),
        )
        for name, made in _FILES.items()
    ),
    *(
        Row(
            name=f"export-{name}",
            what=f"the same cards as a file in the format {name}, indented",
            against="json.loads of the same file",
            felt_by=f"a person who exports conversations in the format {name}",
            target=at_most(3),
            rounds=_ROUNDS,
            prepare=partial(_exporting, name=name),
        )
        for name in _WRITTEN
    ),
]
