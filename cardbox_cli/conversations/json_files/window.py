"""Reading JSON of any size through a window: what fits into it is read whole, what does not, piece by piece.

The parser is the standard library's, on the text in the window: stream parsers built on yajl replace a lone
surrogate by "?" without a word, and here what is read must be what was written. Owns finding out where in
the file a value begins and ends, and where a text is no JSON. What the values mean is the reader's business.
"""

import codecs
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, NoReturn

from cardbox_cli.errors import InvalidConversation, InvalidInput
from cardbox_cli.limits import VALUE_SIZE
from cardbox_cli.model import exact_json

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
