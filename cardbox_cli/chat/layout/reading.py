"""From the files of a chat's folder to values. What is none of the layout is skipped, counted and named.

Pure: files are handed in as bytes by their names below the folder. Reading them is `folders.py`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from cardbox_cli.chat.layout import names
from cardbox_cli.chat.layout.records import Archive, Item, Line, Message, Unfit, moment_of
from cardbox_cli.model import exact_json

_Record = TypeVar("_Record")
_BOM = b"\xef\xbb\xbf"


class Skipped(msgspec.Struct, frozen=True):
    """What of a file was not taken, and why. `line` counts from 1; None where it is the whole file."""

    file: str
    line: int | None
    reason: str


class Moved(msgspec.Struct, frozen=True):
    """The lines of one file of a transcript. `number` is that of the file that they were moved to.

    None: they are in the file that grows.
    """

    number: int | None
    lines: list[Line]


class ChatFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What the files of one chat hold. The transcript's files are in order, the one that grows last.

    `active` is None where there is no such file; empty, the context was cleared. `items` are those of the
    index, whose other keys are in `beside`; None where there is no index. `ignored` are the files that are
    none of the layout.
    """

    chat_key: str
    transcript: list[Moved]
    active: list[Message] | None
    archives: list[Archive]
    items: list[Item] | None
    beside: dict[str, Any] = {}
    memory: str | None
    skipped: list[Skipped] = []
    ignored: list[str] = []


def read_chat(chat_key: str, files: Mapping[str, bytes]) -> ChatFiles:
    """The chat whose files these are."""
    skipped: list[Skipped] = []
    reader = _Reader(chat_key, files, skipped)
    archives = reader.archives()
    items, beside = reader.index({archive.context_id for archive in archives})
    return ChatFiles(
        chat_key=chat_key,
        transcript=reader.transcript(),
        active=reader.active(),
        archives=archives,
        items=items,
        beside=beside,
        memory=reader.memory(),
        skipped=skipped,
        ignored=[name for name in files if not _is_known(name)],
    )


def read_text(name: str, data: bytes, skipped: list[Skipped]) -> str | None:
    """The text of a file, as the layout keeps them for people to write; None where it is blank, or none."""
    try:
        text = data.removeprefix(_BOM).decode()
        exact_json.check_storable(text)
    except (UnicodeDecodeError, exact_json.Unstorable) as exc:
        skipped.append(Skipped(name, None, _why(exc)))
        return None
    return text if text.strip() else None


class _Reader:
    """The files of one chat; what is skipped of them goes into the list that it is given."""

    def __init__(self, chat_key: str, files: Mapping[str, bytes], skipped: list[Skipped]) -> None:
        self._chat_key = chat_key
        self._files = files
        self._skipped = skipped

    def transcript(self) -> list[Moved]:
        numbers = sorted(number for name in self._files if (number := names.number_of(name)) is not None)
        moved = [Moved(number, self._lines(names.rolled(number))) for number in numbers]
        return [*moved, Moved(None, self._lines(names.HISTORY))] if names.HISTORY in self._files else moved

    def _lines(self, name: str) -> list[Line]:
        return self._records(name, self._line)

    def _line(self, value: object) -> Line:
        line = Line.of(value)
        self._check_key(line.chat_key)
        return line

    def active(self) -> list[Message] | None:
        if names.ACTIVE not in self._files:
            return None
        return self._records(names.ACTIVE, Message.of_line)

    def archives(self) -> list[Archive]:
        """The archived contexts, the oldest first."""
        found = [each for name in sorted(self._files) if (each := self._archive(name)) is not None]
        return sorted(found, key=lambda each: (moment_of(each.archived_at), each.context_id))

    def _archive(self, name: str) -> Archive | None:
        context_id = names.context_of(name)
        if context_id is None:
            return None
        try:
            archive, refused = Archive.of(_value(self._files[name]))
            self._check_key(archive.chat_key)
            if archive.context_id != context_id:
                raise Unfit(f"its contextId is {archive.context_id[:80]!r}, not the file's name")
        except Unfit as exc:
            self._skip(name, None, str(exc))
            return None
        for number, reason in refused:
            self._skip(name, None, f"message {number}: {reason}")
        return archive

    def index(self, taken: Collection[str]) -> tuple[list[Item] | None, dict[str, Any]]:
        if names.INDEX not in self._files:
            return None, {}
        try:
            value = msgspec.convert(_value(self._files[names.INDEX]), dict[str, Any])
            listed = msgspec.convert(value.get("items"), list[Any])
        except (Unfit, msgspec.ValidationError) as exc:
            self._skip(names.INDEX, None, str(exc))
            return [], {}
        found = (self._item(number, each, taken) for number, each in enumerate(listed, 1))
        items = [item for item in found if item is not None]
        return items, {key: each for key, each in value.items() if key not in ("v", "items")}

    def _item(self, number: int, value: object, taken: Collection[str]) -> Item | None:
        try:
            item = Item.of(value)
            if item.context_id not in taken:
                raise Unfit(f"there is no archive {item.context_id[:80]!r}")
        except Unfit as exc:
            self._skip(names.INDEX, None, f"item {number}: {exc}")
            return None
        return item

    def memory(self) -> str | None:
        data = self._files.get(names.MEMORY)
        return None if data is None else read_text(names.MEMORY, data, self._skipped)

    def _records(self, name: str, take: Callable[[object], _Record]) -> list[_Record]:
        found = []
        for number, line in _numbered(self._files[name]):
            try:
                found.append(take(_value(line)))
            except Unfit as exc:
                self._skip(name, number, str(exc))
        return found

    def _check_key(self, found: str) -> None:
        if found != self._chat_key:
            raise Unfit(f"its chatKey is {found[:80]!r}, not the folder's")

    def _skip(self, name: str, line: int | None, reason: str) -> None:
        self._skipped.append(Skipped(name, line, reason))


def _is_known(name: str) -> bool:
    known = name in (names.HISTORY, names.ACTIVE, names.INDEX, names.MEMORY)
    return known or names.number_of(name) is not None or names.context_of(name) is not None


def _numbered(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1."""
    lines = data.removeprefix(_BOM).split(b"\n")
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _value(data: bytes) -> Any:
    """The JSON value of a line or file. Raises Unfit."""
    try:
        return exact_json.read(data.removeprefix(_BOM).decode())
    except ValueError as exc:
        raise Unfit(_why(exc)) from None


def _why(exc: ValueError) -> str:
    if isinstance(exc, UnicodeDecodeError):
        return f"not UTF-8 (byte {exc.start})"
    if isinstance(exc, exact_json.Malformed):
        return f"not JSON at column {exc.colno}: {exc.msg}"
    return str(exc)
