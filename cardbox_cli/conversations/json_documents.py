"""JSON files of any size, read through a window: one document, or one value per line.

A value that fits into the window is read whole, a larger one lazily. The parser is the standard library's:
stream parsers built on yajl silently replace a lone surrogate by "?", and cbx must read exactly what was
written. The readers decide what a value means.
"""

import codecs
import json
import os
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, BinaryIO, NamedTuple, NoReturn

import msgspec

from cardbox_cli.errors import InvalidConversation, InvalidInput
from cardbox_cli.limits import VALUE_SIZE
from cardbox_cli.model import exact_json

# The default size of the window in characters.
WINDOW = 2 << 20

# No token except a string is longer, so an error further from the window's end is not due to the cut.
_MAX_TOKEN = 12
_NO_BLANK = re.compile(r"[^ \t\r\n]")


class JsonSource:
    """The bytes of a file at its current size; bytes that are appended later are not read.

    `window` is the size, in characters, of a value that is read whole, and `most` the limit of a value that
    must be in memory. `heard` is called with the offset reached. Errors are of the type `refuse_with`, with
    `hint`.
    """

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        *,
        size: int | None = None,
        window: int = WINDOW,
        most: int = VALUE_SIZE.value << 20,
        heard: Callable[[int], object] = lambda _: None,
        refuse_with: type[InvalidInput] = InvalidConversation,
        hint: str = "give a JSON or JSONL file of messages",
    ) -> None:
        self.name = name
        self.size = os.fstat(file.fileno()).st_size if size is None else size
        self.window = window
        self.most = most
        self.refuse_with = refuse_with
        self.hint = hint
        self._file = file
        self._heard = heard

    def check_size(self, size: int, place: str) -> None:
        """Raise the source's error if a value of this size is too large for memory. It begins at `place`."""
        if size > self.most:
            most = f"{self.most >> 20} MiB" if self.most >> 20 else f"{self.most} characters"
            hint = "split the value; only lists may be larger, not their items"
            raise self.refuse_with(f"{place}: the value is larger than {most}", hint=hint)

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes from `offset` on, none at the end."""
        data = os.pread(self._file.fileno(), max(0, min(count, self.size - offset)), offset)
        self._heard(offset + len(data))
        return data


class JsonPosition(NamedTuple):
    """A position in a file: its offset in bytes, its line and its column in characters, both from 1."""

    offset: int
    line: int
    column: int


class LazyList:
    """An array that is too large for memory. Each iteration reads it again from its file."""

    def __init__(self, source: JsonSource, mark: JsonPosition) -> None:
        self._source = source
        self._mark = mark
        self._tested: dict[Callable[[Any], bool], bool] = {}

    def __iter__(self) -> Iterator[Any]:
        return JsonCursor(self._source, self._mark).items(whole=True)

    def all(self, test: Callable[[Any], bool]) -> bool:
        """Return whether every item passes `test`. The result is cached, because a check reads the file."""
        if test not in self._tested:
            self._tested[test] = all(map(test, self))
        return self._tested[test]

    def parts(self) -> Iterator[Any]:
        """Yield the items. Large ones contain `LazyList`s."""
        return JsonCursor(self._source, self._mark).items(whole=False)


def load_lazy_lists(value: Any) -> Any:
    """Return `value` with every `LazyList` in it read into memory."""
    if isinstance(value, LazyList):
        return list(value)
    if isinstance(value, dict):
        return {key: load_lazy_lists(item) for key, item in value.items()}
    return value


class JsonCursor:
    """A reader that advances through a source value by value, from a given position."""

    def __init__(self, source: JsonSource, mark: JsonPosition) -> None:
        self._source = source
        self._read = mark.offset
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False
        # The position of index `_marked_at` of the text. `mark` counts from there.
        self._mark, self._marked_at = mark, 0

    @property
    def mark(self) -> JsonPosition:
        passed = self._text[self._marked_at : self._at]
        breaks = passed.count("\n")
        self._mark = JsonPosition(
            self._mark.offset + len(passed.encode()),
            self._mark.line + breaks,
            len(passed) - passed.rfind("\n") if breaks else self._mark.column + len(passed),
        )
        self._marked_at = self._at
        return self._mark

    def peek(self) -> str:
        """Move to the next character that is not blank, and return it; "" at the end."""
        while (match := _NO_BLANK.search(self._text, self._at)) is None:
            self._at = len(self._text)
            if not self._fill():
                return ""
        self._at = match.start()
        return match[0]

    def value(self, *, whole: bool) -> Any:
        """Read the next value. Unless `whole`, a value that exceeds the window contains `LazyList`s.

        Raises the source's error, naming the place, for invalid JSON.
        """
        opening = self.peek()
        while True:
            try:
                value, end = exact_json.strict_reader.raw_decode(self._text, self._at)
            except json.JSONDecodeError as exc:
                is_near_end = exc.pos > len(self._text) - _MAX_TOKEN
                if self._ended or not (is_near_end or exc.msg.startswith("Unterminated string")):
                    self._refuse(exc.msg, exc.pos)
            except RecursionError:
                raise self._source.refuse_with(f"{self._place(self._at)}: nested too deeply") from None
            except ValueError as exc:
                raise self._source.refuse_with(f"{self._place(self._at)}: {exc}") from exc
            else:
                # A number at the end of the window may continue behind it, as 1 does in 1.5 and 1e+5.
                may_go_on = self._text[end - 1].isdigit() and end > len(self._text) - len("e+5")
                if self._ended or not may_go_on:
                    self._at = end
                    return value
            if not whole and opening in ("[", "{") and len(self._text) - self._at >= self._source.window:
                if opening == "{":
                    return self._object()
                lazy = LazyList(self._source, self.mark)
                deque(self.items(whole=False), maxlen=0)
                return lazy
            if len(self._text) - self._at > self._source.most:
                self._source.check_size(len(self._text) - self._at, self._place(self._at))
            self._fill()

    def items(self, *, whole: bool) -> Iterator[Any]:
        """Yield the items of the array at the cursor, and then move behind the array."""
        for _ in self._item_starts("[", "]"):
            yield self.value(whole=whole)

    def end(self) -> None:
        """Raise the source's error if anything follows."""
        if self.peek():
            self._refuse("Extra data", self._at)

    def _object(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        size, first = 0, self._place(self._at)
        for _ in self._item_starts("{", "}"):
            if self.peek() != '"':
                self._refuse("Expecting property name enclosed in double quotes", self._at)
            begin = self.mark.offset
            key = self.value(whole=True)
            if key in values:
                raise self._source.refuse_with(
                    f"{self._place(self._at)}: an object has the key {key[:80]!r} twice"
                )
            self._expect(":")
            values[key] = self.value(whole=False)
            if not isinstance(values[key], LazyList | dict):
                size += self.mark.offset - begin
                self._source.check_size(size, first)
        return values

    def _item_starts(self, opening: str, closing: str) -> Iterator[None]:
        """Yield at the beginning of each item of an array or object. The caller reads the item."""
        self._expect(opening)
        if self.peek() != closing:
            yield
            while self.peek() != closing:
                self._expect(",")
                yield
        self._expect(closing)

    def _expect(self, character: str) -> None:
        if self.peek() != character:
            self._refuse(f"Expecting {character!r} delimiter", self._at)
        self._at += 1

    def _fill(self) -> bool:
        """Read the next bytes. Doubles the text, so that a large value is not parsed too often."""
        before = self._read - len(self._decoder.getstate()[0])
        data = self._source.read(self._read, max(self._source.window, len(self._text) - self._at))
        self._ended = not data
        try:
            more = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as exc:
            message = f"{self._source.name} is not UTF-8 (byte {before + exc.start})"
            raise self._source.refuse_with(message, hint="convert the file to UTF-8") from exc
        if not more and self._ended:
            return False
        self._mark = self.mark
        self._text = self._text[self._at :] + more
        self._at = self._marked_at = 0
        self._read += len(data)
        return not self._ended

    def _place(self, at: int) -> str:
        self._at = at
        return f"{self._source.name}:{self.mark.line}:{self.mark.column}"

    def _refuse(self, what: str, at: int) -> NoReturn:
        raise self._source.refuse_with(f"{self._place(at)}: not JSON: {what}", hint=self._source.hint)


# --- the values of a file: each pass reads them again, which costs time but no memory

_BOM = b"\xef\xbb\xbf"
# The number of bytes that usually show that a file is not blank, and that its first line is a value.
_HEAD_BYTES = 4096
_UNREAD = object()


class JsonDocument(NamedTuple):
    place: str
    value: Any


class JsonDocuments:
    """The values of a file in order. Raises the source's error, naming the place, for invalid JSON."""

    # The one value of the file, if `in_lines` has read it.
    _whole: Any = _UNREAD

    def __init__(self, source: JsonSource) -> None:
        self.name = source.name
        self._source = source
        self._is_checked = False
        self._tested: dict[Callable[[Any], bool], bool] = {}
        self._begin = len(_BOM) if source.read(0, len(_BOM)) == _BOM else 0

    @property
    def is_blank(self) -> bool:
        if self._source.read(self._begin, _HEAD_BYTES).strip():
            return False
        head = self._source.read(self._begin, self._source.window)
        return not head.strip() and self._begin + self._source.window >= self._source.size

    @cached_property
    def is_json_lines(self) -> bool:
        """True if the file is JSON lines: its first line is a value, and another line follows."""
        if self.is_blank:
            raise self._source.refuse_with(f"{self.name} is empty", hint=self._source.hint)
        line, ends, _ = self._source.read(self._begin, _HEAD_BYTES).lstrip().partition(b"\n")
        if ends and not _is_value(line):
            return False
        line, ends, rest = self._source.read(self._begin, self._source.window).lstrip().partition(b"\n")
        if ends:
            more = rest.strip() != b"" or self._begin + self._source.window < self._source.size
            return more and _is_value(line)
        if self._begin + self._source.window >= self._source.size:
            return False
        cursor = JsonCursor(self._source, JsonPosition(self._begin, 1, 1))
        cursor.peek()
        first_line = cursor.mark.line
        value = cursor.value(whole=False)
        is_in_one_line = cursor.mark.line == first_line
        if cursor.peek() == "":
            self._whole = value
            return False
        return is_in_one_line and cursor.mark.line > first_line

    def __iter__(self) -> Iterator[JsonDocument]:
        if self.is_json_lines:
            return (document for _, document in self.numbered())
        return iter([self._single])

    def all(self, test: Callable[[Any], bool]) -> bool:
        """Return whether every value passes `test`. The result is cached, because a check reads the file."""
        if test not in self._tested:
            self._tested[test] = all(test(value) for _, value in self)
        return self._tested[test]

    def numbered(self) -> Iterator[tuple[int, JsonDocument]]:
        """Yield the documents of a file of JSON lines, each with the number of its line."""
        mark, unread = JsonPosition(self._begin, 1, 1), b""
        while chunk := self._source.read(mark.offset + len(unread), self._source.window):
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                if line and not line.isspace():
                    yield mark.line, self._document(line, mark.line)
                mark = JsonPosition(mark.offset + len(line) + 1, mark.line + 1, 1)
            if len(unread) > self._source.window and not unread.isspace():
                cursor = JsonCursor(self._source, mark)
                value = cursor.value(whole=False)
                if cursor.peek() and cursor.mark.line == mark.line:
                    cursor.end()
                yield mark.line, JsonDocument(f"{self.name}:{mark.line}", value)
                mark, unread = cursor.mark, b""
        if unread.strip():
            yield mark.line, self._document(unread, mark.line)
        self._is_checked = True

    def line(self, number: int) -> JsonDocument:
        begin, behind = self._line_offsets[number - 1], self._line_offsets[number]
        self._source.check_size(behind - begin, f"{self.name}:{number}")
        return self._document(self._source.read(begin, behind - begin), number)

    @cached_property
    def _single(self) -> JsonDocument:
        """The one document of a file. It is in memory, except for its large lists."""
        if self._whole is not _UNREAD:
            return JsonDocument(self.name, self._whole)
        cursor = JsonCursor(self._source, JsonPosition(self._begin, 1, 1))
        value = cursor.value(whole=False)
        cursor.end()
        return JsonDocument(self.name, value)

    def _document(self, line: bytes, number: int) -> JsonDocument:
        place = f"{self.name}:{number}"
        # The first pass has checked the line, so a faster parser is safe.
        if self._is_checked:
            with suppress(msgspec.DecodeError, ValueError, RecursionError):
                return JsonDocument(place, exact_json.decode(line))
        try:  # values such as NaN are accepted here: a later check refuses them
            return JsonDocument(place, exact_json.read(line.decode(), exact_json.strict_reader))
        except UnicodeDecodeError as exc:
            message = f"{place}: not UTF-8 (byte {exc.start})"
            raise self._source.refuse_with(message, hint="convert the file to UTF-8") from exc
        except exact_json.Malformed as exc:
            message = f"{place}:{exc.colno}: not JSON: {exc.msg}"
            raise self._source.refuse_with(message, hint=self._source.hint) from exc
        except ValueError as exc:
            raise self._source.refuse_with(f"{place}: {exc}") from exc

    @cached_property
    def _line_offsets(self) -> "array[int]":
        """The offset of each line, and of the end of the last one."""
        offsets, position = array("Q", [self._begin]), self._begin
        while chunk := self._source.read(position, self._source.window):
            offsets.extend(position + match.end() for match in re.finditer(b"\n", chunk))
            position += len(chunk)
        offsets.append(position)
        return offsets


class MemoryDocuments(JsonDocuments):
    """Values in memory with the interface of a file of this name."""

    def __init__(self, name: str, values: Sequence[JsonDocument]) -> None:
        self.name = name
        self._values = values
        self._tested: dict[Callable[[Any], bool], bool] = {}

    def __iter__(self) -> Iterator[JsonDocument]:
        return iter(self._values)


def _is_value(line: bytes) -> bool:
    try:
        exact_json.read(line.decode())
    except ValueError:
        return False
    return True
