"""Safe reading of hand-written YAML, with the position of every part.

A file has one document of JSON values. This module refuses parts that are dangerous, or that different YAML
readers read differently:

- tags, aliases (a small file with aliases can expand to a huge one), merge keys, repeated keys, and keys that
  are not strings
- dates, and unquoted values such as `yes`, `on` and `0x1F`
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from cardbox_cli.errors import InvalidInput
from cardbox_cli.limits import YAML_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.handwritten.documents import (
    MAX_DEPTH,
    DocumentProblem,
    FilePosition,
    HandwrittenDocument,
    document_error,
)
from cardbox_cli.text.error_messages import ValuePath, describe_value, short_repr

MAX_BYTES = YAML_SIZE.value << 20
MAX_VALUES = 10_000

_TOO_LARGE = f"is larger than {YAML_SIZE}"
_YAML_TAG = "tag:yaml.org,2002:"


def decode_text(data: bytes, source: str, *, refuse_with: type[InvalidInput]) -> str:
    """Decode the bytes of a file. Raises `refuse_with` unless they are UTF-8 of at most `MAX_BYTES`."""
    if len(data) > MAX_BYTES:
        raise document_error(refuse_with, source, [DocumentProblem((), _TOO_LARGE)])
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        mark = _mark_after(data[: exc.start].decode())
        problem = DocumentProblem((), f"the byte 0x{data[exc.start]:02x} is not UTF-8 text", mark)
        raise document_error(refuse_with, source, [problem]) from None


def read_yaml(text: str, source: str) -> HandwrittenDocument:
    """Read the one document in `text`. Messages name it `source`. Errors become its problems."""
    reader = _YamlReader()
    try:
        with _load_events(text) as loader:
            value = reader.read(loader)
    except _Aborted as reason:
        problems = [*reader.problems, reason.problem]
        return HandwrittenDocument(source, None, reader.marks, problems, whole=False)
    return HandwrittenDocument(source, value, reader.marks, reader.problems)


class _Aborted(Exception):
    """An error that stops reading. `problem` has the reason."""

    def __init__(self, message: str, mark: FilePosition | None = None) -> None:
        super().__init__(message)
        self.problem = DocumentProblem((), message, mark)


class _YamlReader:
    """A reader that builds a value from PyYAML's events, and limits their depth and number.

    It does not use PyYAML's nodes, because they follow aliases, do not distinguish explicit from implied
    tags, and do not exist for an incomplete file.
    """

    _loader: Any

    def __init__(self) -> None:
        self.marks: dict[ValuePath, FilePosition] = {}
        self.problems: list[DocumentProblem] = []
        self._values = 0

    def read(self, loader: Any) -> object:
        self._loader = loader
        loader.get_event()
        if loader.check_event(yaml.StreamEndEvent):
            raise _Aborted("the file is empty except for comments")
        loader.get_event()
        self.marks[()] = _mark(loader.peek_event())
        value = self._value(())
        loader.get_event()
        if not loader.check_event(yaml.StreamEndEvent):
            raise _Aborted("a second document begins here; a file holds one", _mark(loader.peek_event()))
        return value

    def _value(self, where: ValuePath) -> object:
        event = self._loader.get_event()
        self._check_bounds(event, len(where))
        if isinstance(event, yaml.AliasEvent):
            self._note(where, f"the alias *{event.anchor} is not supported; write the value out", event)
            return None
        if event.tag:
            self._note(
                where,
                f"the tag {short_repr(event.tag.replace(_YAML_TAG, '!!'))} is not supported; remove it",
                event,
            )
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(where)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(where)
        try:
            return _scalar(event)
        except ValueError as reason:
            self._note(where, str(reason), event)
            return None

    def _check_bounds(self, event: yaml.Event, depth: int) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _Aborted(f"more than {MAX_VALUES:,} keys and values", _mark(event))
        if depth > MAX_DEPTH:
            raise _Aborted(f"nested more than {MAX_DEPTH} levels deep", _mark(event))

    def _sequence(self, where: ValuePath) -> list[object]:
        items: list[object] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            here = (*where, len(items))
            self.marks[here] = _mark(self._loader.peek_event())
            items.append(self._value(here))
        self._loader.get_event()
        return items

    def _mapping(self, where: ValuePath) -> dict[str, object]:
        entries: dict[str, object] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            start = self._loader.peek_event()
            self._skip(where)
            try:
                here = (*where, key := _key(start))
            except ValueError as reason:
                self._note(where, str(reason), start)
                self._skip(where)
                continue
            if key in entries:
                self._note(here, f"is repeated; the first one is on line {self.marks[here].line}", start)
                self._skip(where)
            else:
                self.marks[here] = _mark(start)
                entries[key] = self._value(here)
        self._loader.get_event()
        return entries

    def _note(self, where: ValuePath, message: str, event: yaml.Event) -> None:
        self.problems.append(DocumentProblem(where, message, _mark(event)))

    def _skip(self, where: ValuePath) -> None:
        before = len(self.problems)
        self._value((*where, ""))
        del self.problems[before:]


@contextmanager
def _load_events(text: str) -> Iterator[Any]:
    """Yield PyYAML's events of `text`. Raises `_Aborted` if it is too large or not YAML."""
    if len(text) > MAX_BYTES:
        raise _Aborted(_TOO_LARGE)
    try:
        loader: Any = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as exc:
        message = f"the character U+{ord(text[exc.position]):04X} is not allowed in YAML"
        raise _Aborted(message, _mark_after(text[: exc.position])) from None
    try:
        yield loader
    except yaml.MarkedYAMLError as exc:
        raise _Aborted(_syntax_sentence(exc), _mark_of(exc.problem_mark)) from None
    except (ValueError, OverflowError):
        # PyYAML raises these for "\Uffffffff" and for %YAML with many digits.
        message = "an escape or a directive has a number out of range"
        raise _Aborted(message, _mark_of(loader.get_mark())) from None


# Our sentences for frequent mistakes, by PyYAML's message. `{line}` is the line where the construct begins.
_SYNTAX = (
    (r"found character '\\t' that cannot", "YAML requires spaces here, not a tab"),
    (r"found character '(.)' that cannot", r"a value cannot begin with '\1'; quote it"),
    (
        r"mapping values are not allowed",
        "': ' is not allowed here; check the indentation, or quote the value",
    ),
    (
        r"expected <block end>",
        "this does not match the part that begins on line {line}; check the indentation",
    ),
    (r"expected ',' or '([]}])'", r"a ',' or '\1' is missing in the part that begins on line {line}"),
    (r"found unexpected end of stream", "the quote that begins on line {line} is not closed"),
)


def _syntax_sentence(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "unreadable"
    begin = error.context_mark or error.problem_mark
    for pattern, sentence in _SYNTAX:
        if match := re.match(pattern, problem):
            return match.expand(sentence).replace("{line}", str(_mark_of(begin).line))
    return f"not YAML: {problem}"


def _mark(event: yaml.Event) -> FilePosition:
    return _mark_of(event.start_mark)


def _mark_of(mark: Any) -> FilePosition:
    return FilePosition(mark.line + 1, mark.column + 1)


def _mark_after(text: str) -> FilePosition:
    return FilePosition(text.count("\n") + 1, len(text) - text.rfind("\n"))


def _key(event: yaml.Event) -> str:
    """Return the key of a mapping. Raises ValueError unless it is a string."""
    if not isinstance(event, yaml.ScalarEvent):
        raise ValueError("a key must be a string, found a list, a mapping or an alias")
    key = _scalar(event)
    if not isinstance(key, str):
        raise ValueError(f"a key must be a string, found {describe_value(key)}; quote it")
    return key


def _scalar(event: yaml.ScalarEvent) -> object:
    """Return the value of a scalar. Raises ValueError if JSONB cannot store it, or readers disagree on it."""
    value = _unquoted_value(event.value) if event.implicit[0] else _join_surrogates(event.value)
    exact_json.check_storable(value)
    return value


def _join_surrogates(text: str) -> str:
    """Replace each pair of surrogates in `text`, such as JSON's escape of an emoji, by its character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


# Unquoted words that have the same meaning in YAML 1.1, in YAML 1.2 and to people.
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?(?=\.?[0-9])(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?")

# The problem of an unquoted value with different meanings, by the YAML 1.1 tag that the resolver returns.
_ODD_NUMBER = "is a number to some YAML readers and a string to others; quote it, or write it as in JSON"
_DISPUTED = {
    "bool": "is a boolean to some YAML readers and a string to others; write true or false, or quote it",
    "int": _ODD_NUMBER,
    "float": _ODD_NUMBER,
    "timestamp": "is a date in YAML, and JSON has no dates; quote it",
    "merge": "is a merge key, which is not supported; write the keys out",
}
_RESOLVER: Any = yaml.resolver.Resolver()
_ZERO_FIRST = re.compile(r"[-+]?0o?[0-9]+")


def _unquoted_value(text: str) -> object:
    """Return the JSON value of an unquoted text, or the text. Raises ValueError if YAML readers disagree."""
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return _number(text)
    tag = "int" if _ZERO_FIRST.fullmatch(text) else _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    reason = _DISPUTED.get(tag.removeprefix(_YAML_TAG))
    if reason:
        raise ValueError(f"{short_repr(text)} {reason}")
    return text


def _number(text: str) -> object:
    try:
        return int(text) if _INTEGER.fullmatch(text) else exact_json.parse_number(text)
    except (ValueError, ArithmeticError):  # thousands of digits, or an exponent too large for Decimal
        raise ValueError(f"{short_repr(text)} is a number too large to read") from None
