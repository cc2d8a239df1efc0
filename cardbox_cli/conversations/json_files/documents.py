"""The JSON values of a file: one document, or one a line. They are read anew each time they are asked for.

Owns telling JSON from JSON lines, and the places that messages about a file name. A file of any size is
read through a window (`window`), so several passes over one cost time and no memory.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.conversations.json_files.window import Cursor, Mark, Source
from cardbox_cli.model import exact_json

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
