"""JSON files of any size: `window` finds where a value begins and ends, `documents` reads on."""

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

# Reading JSON of any size through a window: what fits into it is read whole, what does not, piece by piece.
#
# The parser is the standard library's, on the text in the window: stream parsers built on yajl replace a lone
# surrogate by "?" without a word, and here what is read must be what was written. Owns finding out where in
# the file a value begins and ends, and where a text is no JSON. What the values mean is the reader's
# business.


WINDOW = 2 << 20

# No token but a string is longer than this, so an error further from the window's end is no cut.
_LONGEST_TOKEN = 12
_NO_BLANK = re.compile(r"[^ \t\r\n]")


class Source:
    """The bytes of a file as long as it is now; what is appended later is not read.

    `window` is the size in characters of what is read whole, `most` that of a value that must be held, and
    `heard` is told the offset that was reached.
    What is wrong with it is an error of the kind `refuse_with`; `hint` says what was expected.
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
        """Raise the refusal for a value that begins at `place` and is too large to be held."""
        if size > self.most:
            most = f"{self.most >> 20} MiB" if self.most >> 20 else f"{self.most} characters"
            hint = "lists may be of any length, their items may not: give it in smaller parts"
            raise self.refuse_with(f"{place}: a value of more than {most}", hint=hint)

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset` on; none at the end."""
        data = os.pread(self._file.fileno(), max(0, min(count, self.size - offset)), offset)
        self._heard(offset + len(data))
        return data


class Mark(NamedTuple):
    """A place in a file: its offset in bytes; its line, and the character there, both counted from 1."""

    offset: int
    line: int
    column: int


class LazyList:
    """An array that is too large to hold. Iterating reads it from its file, every time anew.

    `parts` gives large items piece by piece in turn.
    """

    def __init__(self, source: Source, mark: Mark) -> None:
        self._source = source
        self._mark = mark
        self._tested: dict[Callable[[Any], bool], bool] = {}

    def __iter__(self) -> Iterator[Any]:
        return Cursor(self._source, self._mark).items(whole=True)

    def all(self, test: Callable[[Any], bool]) -> bool:
        """Whether every item passes `test`. The answer is remembered: finding it reads the file."""
        if test not in self._tested:
            self._tested[test] = all(map(test, self))
        return self._tested[test]

    def parts(self) -> Iterator[Any]:
        """The items, those that are large with `LazyList`s in them."""
        return Cursor(self._source, self._mark).items(whole=False)


def held(value: Any) -> Any:
    """`value` with every `LazyList` in it read whole."""
    if isinstance(value, LazyList):
        return list(value)
    if isinstance(value, dict):
        return {key: held(item) for key, item in value.items()}
    return value


class Cursor:
    """Reads on from a mark in a source, value by value."""

    def __init__(self, source: Source, mark: Mark) -> None:
        self._source = source
        self._read = mark.offset
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False
        # The mark of the place `_marked_at` of the text; `mark` goes on from there.
        self._mark, self._marked_at = mark, 0

    @property
    def mark(self) -> Mark:
        """Where the cursor stands."""
        passed = self._text[self._marked_at : self._at]
        breaks = passed.count("\n")
        self._mark = Mark(
            self._mark.offset + len(passed.encode()),
            self._mark.line + breaks,
            len(passed) - passed.rfind("\n") if breaks else self._mark.column + len(passed),
        )
        self._marked_at = self._at
        return self._mark

    def peek(self) -> str:
        """The next character that is not blank, where the cursor then stands; "" at the end."""
        while (found := _NO_BLANK.search(self._text, self._at)) is None:
            self._at = len(self._text)
            if not self._fill():
                return ""
        self._at = found.start()
        return found[0]

    def value(self, *, whole: bool) -> Any:
        """The value that stands here. Unless `whole`, one that exceeds the window has `LazyList`s in it.

        Raises the source's refusal, naming the place, for what is no JSON.
        """
        opening = self.peek()
        while True:
            try:
                value, end = exact_json.strict_reader.raw_decode(self._text, self._at)
            except json.JSONDecodeError as exc:
                is_near_end = exc.pos > len(self._text) - _LONGEST_TOKEN
                if self._ended or not (is_near_end or exc.msg.startswith("Unterminated string")):
                    self._refuse(exc.msg, exc.pos)
            except RecursionError:
                raise self._source.refuse_with(f"{self._place(self._at)}: nested too deeply") from None
            except ValueError as exc:
                raise self._source.refuse_with(f"{self._place(self._at)}: {exc}") from exc
            else:
                # A number that ends where the window ends may go on behind it, as 1 does in 1.5 and 1e+5.
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
        """The items of the array that begins here; behind the last one the cursor stands behind the array."""
        for _ in self._places("[", "]"):
            yield self.value(whole=whole)

    def end(self) -> None:
        """Raise the source's refusal unless nothing follows."""
        if self.peek():
            self._refuse("Extra data", self._at)

    def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        size, first = 0, self._place(self._at)
        for _ in self._places("{", "}"):
            if self.peek() != '"':
                self._refuse("Expecting property name enclosed in double quotes", self._at)
            begin = self.mark.offset
            key = self.value(whole=True)
            if key in found:
                raise self._source.refuse_with(
                    f"{self._place(self._at)}: the key {key[:80]!r} stands twice in an object"
                )
            self._take(":")
            found[key] = self.value(whole=False)
            if not isinstance(found[key], LazyList | dict):
                size += self.mark.offset - begin
                self._source.check_size(size, first)
        return found

    def _places(self, opening: str, closing: str) -> Iterator[None]:
        """Stop where each item of an array or an object begins; whoever asks reads it."""
        self._take(opening)
        if self.peek() != closing:
            yield
            while self.peek() != closing:
                self._take(",")
                yield
        self._take(closing)

    def _take(self, character: str) -> None:
        if self.peek() != character:
            self._refuse(f"Expecting {character!r} delimiter", self._at)
        self._at += 1

    def _fill(self) -> bool:
        """Read on, as much again as there is, so that a large value is not tried too often."""
        before = self._read - len(self._decoder.getstate()[0])
        data = self._source.read(self._read, max(self._source.window, len(self._text) - self._at))
        self._ended = not data
        try:
            more = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as exc:
            message = f"{self._source.name} is not UTF-8 (byte {before + exc.start})"
            raise self._source.refuse_with(message, hint="convert it") from exc
        if not more and self._ended:
            return False  # what was read stays as it is
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


# The JSON values of a file: one document, or one a line. They are read anew each time they are asked for.
#
# Owns telling JSON from JSON lines, and the places that messages about a file name. A file of any size is
# read through a window (`window`), so several passes over one cost time and no memory.


_BOM = b"\xef\xbb\xbf"
# So many bytes tell of most files whether they are blank, and whether their first line is a value.
_HEAD = 4096
_UNREAD = object()


class Document(NamedTuple):
    """A JSON value of a file and the place where it stands, for messages."""

    place: str
    value: Any


class Documents:
    """The values of a file in order. Raises the source's refusal, naming the place, for what is no JSON."""

    # The one value of the file, where looking for lines has read it.
    _whole: Any = _UNREAD

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self._source = source
        self._is_checked = False
        self._tested: dict[Callable[[Any], bool], bool] = {}
        self._begin = len(_BOM) if source.read(0, len(_BOM)) == _BOM else 0

    @property
    def is_blank(self) -> bool:
        """Whether the file has nothing to read."""
        if self._source.read(self._begin, _HEAD).strip():
            return False
        head = self._source.read(self._begin, self._source.window)
        return not head.strip() and self._begin + self._source.window >= self._source.size

    @cached_property
    def in_lines(self) -> bool:
        """Whether the file is JSON lines: its first line is a value, and more follows on another line."""
        if self.is_blank:
            raise self._source.refuse_with(f"{self.name} is empty", hint=self._source.hint)
        line, ends, _ = self._source.read(self._begin, _HEAD).lstrip().partition(b"\n")
        if ends and not _is_value(line):
            return False
        line, ends, rest = self._source.read(self._begin, self._source.window).lstrip().partition(b"\n")
        if ends:
            more = rest.strip() != b"" or self._begin + self._source.window < self._source.size
            return more and _is_value(line)
        if self._begin + self._source.window >= self._source.size:
            return False  # there is one line
        cursor = Cursor(self._source, Mark(self._begin, 1, 1))
        cursor.peek()
        first_line = cursor.mark.line
        value = cursor.value(whole=False)
        is_in_one_line = cursor.mark.line == first_line
        if cursor.peek() == "":
            self._whole = value
            return False
        return is_in_one_line and cursor.mark.line > first_line

    def __iter__(self) -> Iterator[Document]:
        if self.in_lines:
            return (document for _, document in self.numbered())
        return iter([self._single])

    def all(self, test: Callable[[Any], bool]) -> bool:
        """Whether every value passes `test`. The answer is remembered: finding it reads the file."""
        if test not in self._tested:
            self._tested[test] = all(test(value) for _, value in self)
        return self._tested[test]

    def numbered(self) -> Iterator[tuple[int, Document]]:
        """The documents of a file in lines, each with the number of its line."""
        mark, unread = Mark(self._begin, 1, 1), b""
        while chunk := self._source.read(mark.offset + len(unread), self._source.window):
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                if line and not line.isspace():
                    yield mark.line, self._document(line, mark.line)
                mark = Mark(mark.offset + len(line) + 1, mark.line + 1, 1)
            if len(unread) > self._source.window and not unread.isspace():
                value, behind = self._large(mark)
                yield mark.line, Document(f"{self.name}:{mark.line}", value)
                mark, unread = behind, b""
        if unread.strip():
            yield mark.line, self._document(unread, mark.line)
        self._is_checked = True

    def line(self, number: int) -> Document:
        """The document in the line of this number."""
        begin, behind = self._line_offsets[number - 1], self._line_offsets[number]
        self._source.check_size(behind - begin, f"{self.name}:{number}")
        return self._document(self._source.read(begin, behind - begin), number)

    @cached_property
    def _single(self) -> Document:
        """The one document of a file, which is in memory but for its large lists."""
        if self._whole is not _UNREAD:
            return Document(self.name, self._whole)
        cursor = Cursor(self._source, Mark(self._begin, 1, 1))
        value = cursor.value(whole=False)
        cursor.end()
        return Document(self.name, value)

    def _document(self, line: bytes, number: int) -> Document:
        place = f"{self.name}:{number}"
        # What the first pass let in can be read faster.
        if self._is_checked:
            with suppress(msgspec.DecodeError, ValueError, RecursionError):
                return Document(place, exact_json.decode(line))
        return Document(place, self._strictly(line, place))

    def _strictly(self, line: bytes, place: str) -> Any:
        """The value of a line, whatever it holds that only a later check refuses, such as NaN."""
        try:
            return exact_json.read(line.decode(), exact_json.strict_reader)
        except UnicodeDecodeError as exc:
            message = f"{place}: not UTF-8 (byte {exc.start})"
            raise self._source.refuse_with(message, hint="convert it") from exc
        except exact_json.Malformed as exc:
            message = f"{place}:{exc.colno}: not JSON: {exc.msg}"
            raise self._source.refuse_with(message, hint=self._source.hint) from exc
        except ValueError as exc:
            raise self._source.refuse_with(f"{place}: {exc}") from exc

    def _large(self, mark: Mark) -> tuple[Any, Mark]:
        """The value of a line that exceeds the window, and where the next line begins."""
        cursor = Cursor(self._source, mark)
        value = cursor.value(whole=False)
        if cursor.peek() and cursor.mark.line == mark.line:
            cursor.end()
        return value, cursor.mark

    @cached_property
    def _line_offsets(self) -> "array[int]":
        """Where each line begins, and where the last one ends."""
        offsets, position = array("Q", [self._begin]), self._begin
        while chunk := self._source.read(position, self._source.window):
            found = chunk.find(b"\n")
            while found >= 0:
                offsets.append(position + found + 1)
                found = chunk.find(b"\n", found + 1)
            position += len(chunk)
        offsets.append(position)
        return offsets


class HeldDocuments(Documents):
    """Values that are in memory, as if they stood in a file of this name."""

    def __init__(self, name: str, values: Sequence[Document]) -> None:
        self.name = name
        self._values = values
        self._tested: dict[Callable[[Any], bool], bool] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter(self._values)


def _is_value(line: bytes) -> bool:
    try:
        exact_json.read(line.decode())
    except ValueError:
        return False
    return True
