"""The files of a chat's folder as values, and back. Invalid records are skipped, each with its reason.

Pure: files are bytes or texts by their names in the folder. `folders` reads and writes them on disk.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from cardbox_cli.chat.files import records
from cardbox_cli.chat.files.records import (
    ActiveSnapshot,
    ArchiveRecord,
    IndexItem,
    InvalidRecord,
    MessageRecord,
    TranscriptLine,
    parse_each,
    parse_stamp,
)
from cardbox_cli.model import exact_json

_Parsed = TypeVar("_Parsed")
_BOM = b"\xef\xbb\xbf"


class SkippedRecord(msgspec.Struct, frozen=True):
    """A record that was not read, and why. `line` counts from 1; None means the whole file."""

    file: str
    line: int | None
    reason: str


class TranscriptFile(msgspec.Struct, frozen=True):
    """The lines of one file of a transcript. `number` is the file's; None means the file that grows."""

    number: int | None
    lines: list[TranscriptLine]


class ChatFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one chat's files. The transcript's files are in order, the one that grows last.

    `active` is None without such a file, and empty if the context was cleared. `items` are the entries of the
    index, None without an index; `index_fields` are its other keys. `ignored` are files outside the layout.
    """

    chat_key: str
    transcript: list[TranscriptFile]
    active: list[MessageRecord] | None
    archives: list[ArchiveRecord]
    items: list[IndexItem] | None
    index_fields: dict[str, Any] = {}
    memory: str | None
    skipped: list[SkippedRecord] = []
    ignored: list[str] = []


def read_chat(chat_key: str, files: Mapping[str, bytes]) -> ChatFiles:
    reader = _ChatReader(chat_key, files)
    archives = reader.archives()
    items, index_fields = reader.index({archive.context_id for archive in archives})
    return ChatFiles(
        chat_key=chat_key,
        transcript=reader.transcript(),
        active=reader.active(),
        archives=archives,
        items=items,
        index_fields=index_fields,
        memory=reader.memory(),
        skipped=reader.skipped,
        ignored=[name for name in files if not _is_known(name, files)],
    )


def read_text(name: str, data: bytes, skipped: list[SkippedRecord]) -> str | None:
    """Return the text of a file that people write; None if it is blank, or invalid and thus `skipped`."""
    try:
        text = data.removeprefix(_BOM).decode()
        exact_json.check_storable(text)
    except (UnicodeDecodeError, exact_json.Unstorable) as exc:
        skipped.append(SkippedRecord(name, None, _reason(exc)))
        return None
    return text if text.strip() else None


class _ChatReader:
    def __init__(self, chat_key: str, files: Mapping[str, bytes]) -> None:
        self._chat_key = chat_key
        self._files = files
        self.skipped: list[SkippedRecord] = []

    def transcript(self) -> list[TranscriptFile]:
        numbers = filter(None, map(records.rolled_file_number, self._files))
        names: dict[int | None, str] = {each: records.rolled_file(each) for each in sorted(numbers)}
        if records.HISTORY in self._files:
            names |= {None: records.HISTORY}
        return [TranscriptFile(number, self._records(name, self._line)) for number, name in names.items()]

    def _line(self, value: object) -> TranscriptLine:
        line = TranscriptLine.parse(value)
        self._check_key(line.chat_key)
        return line

    def active(self) -> list[MessageRecord] | None:
        if records.ACTIVE in self._files:
            return self._records(records.ACTIVE, MessageRecord.parse_line)
        return self._active_snapshot() if records.ACTIVE_SNAPSHOT in self._files else None

    def _active_snapshot(self) -> list[MessageRecord] | None:
        name = records.ACTIVE_SNAPSHOT
        try:
            snapshot = ActiveSnapshot.parse(_value(self._files[name]))
            self._check_key(snapshot.chat_key)
        except InvalidRecord as exc:
            self._skip(name, None, str(exc))
            return None
        messages, refused = parse_each(snapshot.turns, MessageRecord.parse_line)
        for number, reason in refused:
            self._skip(name, None, f"message {number}: {reason}")
        return messages

    def archives(self) -> list[ArchiveRecord]:
        """Return the archived contexts, the oldest first."""
        archives = [each for name in sorted(self._files) if (each := self._archive(name)) is not None]
        return sorted(archives, key=lambda each: (parse_stamp(each.archived_at), each.context_id))

    def _archive(self, name: str) -> ArchiveRecord | None:
        context_id = records.archived_context_id(name)
        if context_id is None:
            return None
        try:
            archive, refused = ArchiveRecord.parse_valid(_value(self._files[name]))
            self._check_key(archive.chat_key)
            if archive.context_id != context_id:
                raise InvalidRecord(f"contextId {archive.context_id[:80]!r} is not the file's name")
        except InvalidRecord as exc:
            self._skip(name, None, str(exc))
            return None
        for number, reason in refused:
            self._skip(name, None, f"message {number}: {reason}")
        return archive

    def index(self, taken: Collection[str]) -> tuple[list[IndexItem] | None, dict[str, Any]]:
        if records.INDEX not in self._files:
            return None, {}
        try:
            value = msgspec.convert(_value(self._files[records.INDEX]), dict[str, Any])
            listed = msgspec.convert(value.get("items"), list[Any])
        except (InvalidRecord, msgspec.ValidationError) as exc:
            self._skip(records.INDEX, None, str(exc))
            return [], {}
        parsed = (self._item(number, each, taken) for number, each in enumerate(listed, 1))
        items = [item for item in parsed if item is not None]
        return items, {key: each for key, each in value.items() if key not in ("v", "items")}

    def _item(self, number: int, value: object, taken: Collection[str]) -> IndexItem | None:
        try:
            item = IndexItem.parse(value)
            if item.context_id not in taken:
                raise InvalidRecord(f"unknown archive {item.context_id[:80]!r}")
        except InvalidRecord as exc:
            self._skip(records.INDEX, None, f"item {number}: {exc}")
            return None
        return item

    def memory(self) -> str | None:
        data = self._files.get(records.MEMORY)
        return None if data is None else read_text(records.MEMORY, data, self.skipped)

    def _records(self, name: str, parse: Callable[[object], _Parsed]) -> list[_Parsed]:
        parsed = []
        for number, line in enumerate(self._files[name].removeprefix(_BOM).split(b"\n"), 1):
            try:
                if line.strip():
                    parsed.append(parse(_value(line)))
            except InvalidRecord as exc:
                self._skip(name, number, str(exc))
        return parsed

    def _check_key(self, chat_key: str) -> None:
        if chat_key != self._chat_key:
            raise InvalidRecord(f"chatKey {chat_key[:80]!r} is not the folder's")

    def _skip(self, name: str, line: int | None, reason: str) -> None:
        self.skipped.append(SkippedRecord(name, line, reason))


def _is_known(name: str, files: Container[str]) -> bool:
    is_fixed = name in (records.HISTORY, records.ACTIVE, records.INDEX, records.MEMORY)
    is_fixed = is_fixed or (name == records.ACTIVE_SNAPSHOT and records.ACTIVE not in files)
    return is_fixed or bool(records.rolled_file_number(name) or records.archived_context_id(name))


def _value(data: bytes) -> Any:
    """Parse a line or file as JSON. Raises InvalidRecord."""
    try:
        return exact_json.read(data.removeprefix(_BOM).decode())
    except ValueError as exc:
        raise InvalidRecord(_reason(exc)) from None


def _reason(exc: ValueError) -> str:
    if isinstance(exc, UnicodeDecodeError):
        return f"not UTF-8 (byte {exc.start})"
    if isinstance(exc, exact_json.Malformed):
        return f"not JSON at column {exc.colno}: {exc.msg}"
    return str(exc)


# --- writing, and what a replaced file would lose

# The number of lines above which the older half of a transcript's file moves to a new file.
MAX_LINES = 1000


def encode_files(chat: ChatFiles) -> dict[str, str]:
    """Return the texts of a chat's files by name, in the order in which a concurrent reader misses least."""
    files = {
        records.archive_file(archive.context_id): _document(archive.encode()) for archive in chat.archives
    }
    if chat.items is not None:
        files[records.INDEX] = _document(_index(chat.items, chat.index_fields))
    for moved in chat.transcript:
        name = records.HISTORY if moved.number is None else records.rolled_file(moved.number)
        files[name] = _lines(line.encode() for line in moved.lines)
    if chat.active is not None:
        files[records.ACTIVE] = _lines(message.encode() for message in chat.active)
    if chat.memory is not None:
        files[records.MEMORY] = chat.memory
    return files


def roll_over(files: list[TranscriptFile], more: Iterable[TranscriptLine]) -> list[TranscriptFile]:
    """Append `more` lines. Whenever the last file exceeds `MAX_LINES`, its older half moves to a new file."""
    behind = [each for each in files if each.number is not None]
    lines = [line for each in files if each.number is None for line in each.lines]
    last = behind[-1].number or 0 if behind else 0
    for line in more:
        lines.append(line)
        if len(lines) > MAX_LINES:
            last, half = last + 1, len(lines) // 2
            behind.append(TranscriptFile(last, lines[:half]))
            lines = lines[half:]
    return [*behind, TranscriptFile(None, lines)]


def is_same_content(name: str, current: bytes, text: str) -> bool:
    """Return whether a file equals `text`. Two encodings of the same JSON are equal."""
    if name.endswith(".jsonl"):
        return _values(current) == _values(text.encode())
    return current == text.encode() or (
        name.endswith(".json") and _canonical(current) == _canonical(text.encode())
    )


def describe_loss(name: str, current: bytes, text: str, *, all_files: Mapping[str, str]) -> str | None:
    """Describe what is lost if `text` replaces a file, None if nothing is. The phrase follows its name.

    A line of a transcript is not lost if any of `all_files` has it.
    """
    if name == records.INDEX:
        gone = _missing(_items(current), _items(text.encode()))
        return f"lists {gone} that this chat does not have" if gone else None
    if not name.startswith(("conversations/", records.ACTIVE)):
        return "has a different content"
    prefix = "conversations/" if name.startswith("conversations/") else name
    lines = (
        value for file in all_files if file.startswith(prefix) for value in _values(all_files[file].encode())
    )
    gone = _missing(_values(current), lines)
    return f"has {gone} that this chat does not have" if gone else None


def _missing(current: Iterable[bytes], new: Iterable[bytes]) -> str:
    """Return the number of current values that `new` lacks, such as "2 entries"; "" if it lacks none."""
    gone = (Counter(current) - Counter(new)).total()
    return f"{gone} {'entry' if gone == 1 else 'entries'}" if gone else ""


def _values(data: bytes) -> list[bytes]:
    """Return the lines of a file that are not blank, in canonical JSON. Invalid JSON is unchanged."""
    return [_canonical(line) for line in data.split(b"\n") if line.strip()]


def _items(data: bytes) -> list[bytes]:
    """Return the items of an index in canonical JSON, or the whole file if it is not an index."""
    try:
        listed = msgspec.json.decode(data, type=_Listed).items
    except (msgspec.DecodeError, ValueError, RecursionError):
        return [data]
    return [_canonical(bytes(item)) for item in listed]


class _Listed(msgspec.Struct):
    items: list[msgspec.Raw]


def _canonical(line: bytes) -> bytes:
    """Return canonical JSON. Invalid JSON, or a value that cbx never writes (`1e999999999`), is unchanged."""
    try:
        exact_json.check_storable(exact_json.decode(line))
        return exact_json.canonical(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return line


def _index(items: Iterable[IndexItem], index_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the index, newest item first."""
    newest = sorted(items, key=lambda item: (parse_stamp(item.archived_at), item.context_id), reverse=True)
    return {"v": 1, **index_fields, "items": [item.encode() for item in newest]}


def _lines(values: Iterable[dict[str, Any]]) -> str:
    return "".join(exact_json.encode(value).decode() + "\n" for value in values)


def _document(value: dict[str, Any]) -> str:
    return msgspec.json.format(exact_json.encode(value).decode(), indent=2) + "\n"
