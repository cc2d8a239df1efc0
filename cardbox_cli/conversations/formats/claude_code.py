"""Claude Code's session files (JSON lines) as cards, and back without a difference.

A session is a box, and each of its sidechains is a child box. A line with a message becomes the cards of that
message, like Anthropic's, and the first card preserves the rest of the line. Any other line is a card of type
`session.event`. Lines of one API message share a group.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from cardbox_cli.context import sources
from cardbox_cli.context.messages import gather, never_a_message, role_of
from cardbox_cli.context.parts import dict_at, text_at, text_of
from cardbox_cli.context.sources import imported_card, keep
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Format, Rereadable, parse_time
from cardbox_cli.conversations.json_documents import JsonDocument, JsonDocuments, load_lazy_lists
from cardbox_cli.conversations.message_lists import is_list
from cardbox_cli.errors import InvalidConversation, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import SESSION_EVENT
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.content import JsonContent
from cardbox_cli.providers.anthropic.blocks import NAME as ANTHROPIC
from cardbox_cli.providers.anthropic.cards import AnthropicFiles, empty_content, restore_ids
from cardbox_cli.providers.registry import provider_named
from cardbox_cli.text.error_messages import json_type

NAME = "claude-code"
# The type of a line that often precedes the first line with the session's id.
_SNAPSHOT = "file-history-snapshot"
# The keys by which a line refers to another: its parent, also across a compaction, and a summary's subject.
_LINE_REFERENCES = ("parentUuid", "logicalParentUuid", "leafUuid")

# The id of a session, and the root of one of its sidechains, None for the session itself.
_Thread = tuple[str | None, str | None]


# --- reading


def _marks(value: Any) -> str | None:
    lines = value if is_list(value) else [value]
    return next(filter(None, map(_session_evidence, lines)), None) if _fits(value) else None


def _session_evidence(line: Any) -> str | None:
    if not _is_line(line):
        return None
    key = next((key for key in ("sessionId", "leafUuid") if text_at(line, key)), None)
    if key is not None:
        return f"a line has a type and {key!r}"
    return f"a line is of type {_SNAPSHOT!r}" if line["type"] == _SNAPSHOT else None


def _fits(value: Any) -> bool:
    """Return whether a value is a line, or a list of lines only."""
    return all(map(_is_line, value)) and bool(value) if isinstance(value, list) else _is_line(value)


def _reads(value: Any) -> bool:
    """Return whether a line names its session or has a message, so that it is not an unknown event."""
    return is_list(value) or _session_evidence(value) is not None or _has_message(value)


def _is_line(line: Any) -> bool:
    return text_at(line, "type") is not None and "role" not in line and "messages" not in line


class _SessionLines:
    """The numbered lines of a session, whose file is JSON lines or one JSON list."""

    def __init__(self, documents: JsonDocuments) -> None:
        self._documents = documents

    def numbered(self) -> Iterator[tuple[int, JsonDocument]]:
        if self._documents.is_json_lines:
            return self._documents.numbered()
        [(place, value)] = self._documents
        if not is_list(value):
            return iter([(0, JsonDocument(place, value))])
        return ((index, JsonDocument(f"{place}[{index}]", line)) for index, line in enumerate(value))

    def line(self, number: int) -> JsonDocument:
        """Return one line. If the file is a JSON list, it stays in memory."""
        return self._documents.line(number) if self._documents.is_json_lines else self._all_lines[number]

    @cached_property
    def _all_lines(self) -> list[JsonDocument]:
        return [document for _, document in self.numbered()]


def _read(documents: JsonDocuments, *, at: str | None = None) -> Iterator[Conversation]:
    """Yield the session in a file, and then its sidechains, each in the order of the file."""
    if at is not None:
        raise UsageError(f"--at {at}: a Claude Code session has no key for messages", hint="omit --at")
    lines = _SessionLines(documents)
    threads = _threads(lines)
    with_sidechains = {session for session, root in threads if root is not None}
    for thread in sorted(threads, key=lambda thread: thread[1] is not None):
        session, root = thread
        yield Conversation(
            entries=Rereadable(partial(_entries, lines, threads[thread])),
            place=documents.name,
            own_id=session if root is None or session is None else f"{session}/{root}",
            format=NAME,
            parent_id=None if root is None else session,
            is_part=session in with_sidechains or _continues_other_file(lines, threads[thread]),
        )


def _continues_other_file(lines: _SessionLines, numbers: Iterable[int]) -> bool:
    """Return whether a line before a thread's first message refers to a line of another file."""
    own: set[str | None] = set()
    for number in numbers:
        _, line = lines.line(number)
        if _has_message(line):
            return False
        referred = {text_at(line, key) for key in _LINE_REFERENCES} - {None}
        if not referred <= own:
            return True
        own.add(text_at(line, "uuid"))
    return False


def _entries(lines: _SessionLines, numbers: Iterable[int]) -> Iterator[FileEntry]:
    for position, number in enumerate(numbers):
        place, line = lines.line(number)
        yield FileEntry(str(position), load_lazy_lists(line), place, parse_time(text_at(line, "timestamp")))


def _threads(lines: _SessionLines) -> "dict[_Thread, array[int]]":
    """Group the numbers of the lines by thread. A line without a session belongs to the one before it."""
    threads: dict[_Thread, array[int]] = {}
    roots: dict[str, str] = {}
    session = next(filter(None, (text_at(line, "sessionId") for _, (_, line) in lines.numbered())), None)
    for number, (place, line) in lines.numbered():
        _check_line(line, place)
        session = text_at(line, "sessionId") or session
        root = _root(line, roots) if line.get("isSidechain") is True else None
        threads.setdefault((session, root), array("L")).append(number)
    return threads


def _check_line(line: Any, place: str) -> None:
    if not isinstance(line, dict):
        raise InvalidConversation(f"{place}: a line of a session must be an object, not {json_type(line)}")
    if not isinstance(line.get("type"), str):
        raise InvalidConversation(
            f"{place}: a line of a Claude Code session must have a type", hint="check --from"
        )


def _root(line: dict[str, Any], roots: dict[str, str]) -> str:
    """Return the id of a line's sidechain: its agent's, or its first line's. Adds the line to `roots`."""
    own, parent = text_at(line, "uuid"), text_at(line, "parentUuid")
    root = text_at(line, "agentId") or roots.get(parent or "") or own or parent or ""
    if own:
        roots[own] = root
    return root


# --- drafting


def _messages() -> AnthropicFiles:
    return AnthropicFiles(provider_named(ANTHROPIC))


def _draft(entry: FileEntry) -> list[CardDraft]:
    line = entry.value
    if line["type"] not in ("user", "assistant") or not _has_message(line):
        return [imported_card(SESSION_EVENT, JsonContent(line))]
    message = line["message"]
    cards = _messages().content_cards(message["role"], message["content"], NAME)
    around = {**line, "message": {**message, "content": empty_content(message["content"])}}
    group = {"source_group": message["id"]} if text_at(message, "id") else {}
    cards = [keep(card, NAME, **group) for card in cards]
    return [keep(cards[0], NAME, source_line=around), *cards[1:]]


def _has_message(line: Any) -> bool:
    message = dict_at(line, "message")
    return message.get("role") in ("user", "assistant") and isinstance(message.get("content"), str | list)


# --- exporting


def _export(cards: Iterable[Card]) -> Iterator[str]:
    """Yield the imported lines as JSONL. Other cards become lines of a type and a message."""
    others = _messages().ids_on_export(cards)
    written = (card for card in cards if never_a_message(card) is None or _event(card) is not None)
    for number, run in enumerate(gather(written, lambda card: _envelope(card) is not None)):
        line = _event(run[0]) or _line_of(run, others)
        yield ("\n" if number else "") + exact_json.encode(line).decode()


def _event(card: Card) -> dict[str, Any] | None:
    """Return the line of a card that is a session event, None for any other card."""
    data = card.content.data if isinstance(card.content, JsonContent) else None
    return data if card.type == SESSION_EVENT and isinstance(data, dict) else None


def _line_of(cards: Sequence[Card], others: dict[str, str]) -> dict[str, Any]:
    if (around := _envelope(cards[0])) is not None:
        message = _messages().filled(around["message"], cards)
        return {**around, "message": restore_ids(message, others)}
    role = role_of(cards[0])
    if role == "system":
        return {"type": role, "content": text_of(_messages().joined_content(cards))}
    return {"type": role, "message": restore_ids(_messages().message_of(cards), others)}


def _envelope(card: Card) -> dict[str, Any] | None:
    around = sources.envelope(card, NAME, sources.LINE)
    return around if around is not None and isinstance(around.get("message"), dict) else None


FORMAT = Format(
    name=NAME,
    provider=ANTHROPIC,
    keyspace=(NAME,),
    marks=_marks,
    fits=_fits,
    reads=_reads,
    read=_read,
    draft=_draft,
    keep_original=lambda changed, original: _messages().keep_original(changed, original),
    export=_export,
    names_itself_later=True,
)
