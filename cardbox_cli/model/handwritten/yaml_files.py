"""YAML that people write by hand, read safely and with the place of every part.

A file holds one document of JSON values. Refused, because readers of YAML disagree on them or because they
can hurt: tags, aliases (every bomb needs them), merge keys, repeated keys, keys that are no strings, dates,
and `yes`, `on`, `0x1F` and the like without quotes. Owns reading text; opens no file, and knows nothing of
what a recipe or a profile may hold.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from cardbox_cli.errors import InvalidInput
from cardbox_cli.limits import YAML_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.handwritten.documents import MAX_DEPTH, Document, Mark, Problem, refusal
from cardbox_cli.text import Where, found, shown

MAX_BYTES = YAML_SIZE.value << 20
MAX_VALUES = 10_000

_TOO_LARGE = f"is larger than {YAML_SIZE}"


def text_of(data: bytes, source: str, *, refuse_with: type[InvalidInput]) -> str:
    """The text of a file's bytes. Raises `refuse_with` unless they are UTF-8 of at most `MAX_BYTES`."""
    if len(data) > MAX_BYTES:
        raise refusal(refuse_with, source, [Problem((), _TOO_LARGE)])
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        mark = _mark_after(data[: exc.start].decode())
        problem = Problem((), f"the byte 0x{data[exc.start]:02x} is not UTF-8 text", mark)
        raise refusal(refuse_with, source, [problem]) from None


def read_yaml(text: str, source: str) -> Document:
    """Read the one document in `text`; `source` names it in errors. What is wrong becomes its problems."""
    reader = _Reader()
    try:
        with _loaded(text) as loader:
            value = reader.read(loader)
    except _BrokenOff as reason:
        return Document(source, None, reader.marks, [*reader.problems, reason.problem], whole=False)
    return Document(source, value, reader.marks, reader.problems)


class _BrokenOff(Exception):
    """Reading cannot go on; `problem` says why."""

    def __init__(self, message: str, mark: Mark | None = None) -> None:
        super().__init__(message)
        self.problem = Problem((), message, mark)


class _Reader:
    """Builds a value from PyYAML's events, whose depth and number are bounded as they come.

    Not from its nodes, where an alias is already followed, a written tag looks like one that is implied, and
    of a file that breaks off nothing is left.
    """

    _loader: Any

    def __init__(self) -> None:
        self.marks: dict[Where, Mark] = {}
        self.problems: list[Problem] = []
        self._values = 0

    def read(self, loader: Any) -> object:
        self._loader = loader
        loader.get_event()
        if loader.check_event(yaml.StreamEndEvent):
            raise _BrokenOff("the file is empty, comments aside")
        loader.get_event()
        self.marks[()] = _mark(loader.peek_event())
        value = self._value(())
        loader.get_event()
        if not loader.check_event(yaml.StreamEndEvent):
            raise _BrokenOff("a second document begins here; a file holds one", _mark(loader.peek_event()))
        return value

    def _value(self, where: Where) -> object:
        event = self._loader.get_event()
        self._check_bounds(event, len(where))
        if isinstance(event, yaml.AliasEvent):
            self._note(where, f"the alias *{event.anchor} is not followed; write the value out", event)
            return None
        if event.tag:
            self._note(where, f"the tag {_short_tag(event.tag)} is not read; remove it", event)
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
            raise _BrokenOff(f"more than {MAX_VALUES:,} keys and values", _mark(event))
        if depth > MAX_DEPTH:
            raise _BrokenOff(f"nested more than {MAX_DEPTH} levels deep", _mark(event))

    def _sequence(self, where: Where) -> list[object]:
        items: list[object] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            here = (*where, len(items))
            self.marks[here] = _mark(self._loader.peek_event())
            items.append(self._value(here))
        self._loader.get_event()
        return items

    def _mapping(self, where: Where) -> dict[str, object]:
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
                self._note(here, f"a second time; the first is on line {self.marks[here].line}", start)
                self._skip(where)
            else:
                self.marks[here] = _mark(start)
                entries[key] = self._value(here)
        self._loader.get_event()
        return entries

    def _note(self, where: Where, message: str, event: yaml.Event) -> None:
        self.problems.append(Problem(where, message, _mark(event)))

    def _skip(self, where: Where) -> None:
        """Pass over the key or value that stands here, whatever it holds."""
        before = len(self.problems)
        self._value((*where, ""))
        del self.problems[before:]


@contextmanager
def _loaded(text: str) -> Iterator[Any]:
    """PyYAML's events of `text`. Raises `_BrokenOff` where it is too large or no YAML."""
    if len(text) > MAX_BYTES:
        raise _BrokenOff(_TOO_LARGE)
    try:
        loader: Any = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as exc:
        message = f"the character U+{ord(text[exc.position]):04X} cannot stand in YAML"
        raise _BrokenOff(message, _mark_after(text[: exc.position])) from None
    try:
        yield loader
    except yaml.MarkedYAMLError as exc:
        raise _BrokenOff(_syntax_sentence(exc), _mark_of(exc.problem_mark)) from None
    except (ValueError, OverflowError):
        # PyYAML lets these out for "\Uffffffff" and for %YAML with many digits.
        message = "an escape or a directive holds a number out of range"
        raise _BrokenOff(message, _mark_of(loader.get_mark())) from None


# What people most often get wrong, by PyYAML's words for it; `{line}` is where the construct begins.
_SYNTAX = (
    (r"found character '\\t' that cannot", "a tab stands where YAML wants spaces"),
    (r"found character '(.)' that cannot", r"a value cannot begin with '\1'; quote it"),
    (r"mapping values are not allowed", "': ' cannot stand here; check the indentation, or quote the value"),
    (r"expected <block end>", "this does not fit what begins on line {line}; check the indentation"),
    (r"expected ',' or '([]}])'", r"a ',' or '\1' is missing in what begins on line {line}"),
    (r"found unexpected end of stream", "the quote that begins on line {line} is not closed"),
)


def _syntax_sentence(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "unreadable"
    begin = error.context_mark or error.problem_mark
    for pattern, sentence in _SYNTAX:
        if match := re.match(pattern, problem):
            return match.expand(sentence).replace("{line}", str(_mark_of(begin).line))
    return f"not YAML: {problem}"


def _mark(event: yaml.Event) -> Mark:
    return _mark_of(event.start_mark)


def _mark_of(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def _mark_after(text: str) -> Mark:
    """The place that follows `text`."""
    return Mark(text.count("\n") + 1, len(text) - text.rfind("\n"))


def _short_tag(tag: str) -> str:
    return shown(tag.replace("tag:yaml.org,2002:", "!!"))


def _key(event: yaml.Event) -> str:
    """The string that stands as a key. Raises ValueError if it is none."""
    if not isinstance(event, yaml.ScalarEvent):
        raise ValueError("a key must be a string, and here a list, a mapping or an alias is one")
    key = _scalar(event)
    if not isinstance(key, str):
        raise ValueError(f"a key must be a string, found {found(key)}; quote it")
    return key


def _scalar(event: yaml.ScalarEvent) -> object:
    """The value of a scalar. Raises ValueError for what JSONB cannot hold, or readers disagree on."""
    value = _unquoted_value(event.value) if event.implicit[0] else _with_pairs_joined(event.value)
    exact_json.check_storable(value)
    return value


def _with_pairs_joined(text: str) -> str:
    """`text` with each pair of surrogates, as JSON escapes an emoji, made the one character it means."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


# On these YAML 1.1, YAML 1.2 and people agree.
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?(?=\.?[0-9])(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?")

# On these they do not; the keys are the tags of YAML 1.1, which the resolver knows.
_ODD_NUMBER = "is a number to some readers of YAML and a string to others; quote it, or write it as JSON does"
_DISPUTED = {
    "bool": "is true or false to some readers of YAML and a string to others; write that, or quote it",
    "int": _ODD_NUMBER,
    "float": _ODD_NUMBER,
    "timestamp": "is a date to YAML, and JSON has none; quote it",
    "merge": "is a merge key, which is not followed; write the keys out",
}
_RESOLVER: Any = yaml.resolver.Resolver()
_ZERO_FIRST = re.compile(r"[-+]?0o?[0-9]+")


def _unquoted_value(text: str) -> object:
    """What `text` means without quotes: what JSON says, or itself. Raises ValueError if that is disputed."""
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return _number(text)
    tag = "int" if _ZERO_FIRST.fullmatch(text) else _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    reason = _DISPUTED.get(tag.removeprefix("tag:yaml.org,2002:"))
    if reason:
        raise ValueError(f"{shown(text)} {reason}")
    return text


def _number(text: str) -> object:
    try:
        return int(text) if _INTEGER.fullmatch(text) else exact_json.exact_number(text)
    except (ValueError, ArithmeticError):  # thousands of digits, or an exponent beyond Decimal's
        raise ValueError(f"{shown(text)} is a number too large to read") from None
