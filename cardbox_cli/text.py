"""Formatting of text, for all layers: escaping, lines, quantities, command lines, values, suggestions. Pure.

No text of a card may drive the terminal, imitate another line or hide. Every surface and every error formats
quantities, commands and values of people with these functions. Decides nothing else.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from cardbox_cli.errors import UsageError
from cardbox_cli.limits import EARLIEST, LATEST

# --- characters that act on a terminal or hide

# C0 except newline and tab, DEL, C1. Characters that reorder or hide text: bidi controls, line separators,
# all that Unicode calls default-ignorable (zero-width and filling ones, variation selectors, tags). Lone
# surrogates, which no terminal can encode.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
)
_BREAKS = re.compile("[\t\n]")
_CREDENTIALS = re.compile(r"(?<=://)[^\s\"]*@")


def is_visible(text: str) -> bool:
    """Return whether `text` is one line of visible characters that look like what they are."""
    return text.isprintable() and UNSEEN.search(text) is None


def first_invisible(text: str) -> str | None:
    """Return the first character of `text` that is invisible, or does not look like what it is."""
    return next((character for character in text if not is_visible(character)), None)


def escape_invisible(text: str) -> str:
    """Return `text` with every character that could act on a terminal as an escape, for example `\\x1b`."""
    return UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def escape_line(text: str) -> str:
    """Escape line breaks and tabs, too, so that two different ids never look the same."""
    return escape_invisible(text).replace("\n", "\\n").replace("\t", "\\t")


def escape_json(text: str) -> str:
    """Return JSON with the same characters as JSON escapes; its meaning stays the same."""
    return UNSEEN.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    code = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[place : place + 4]}" for place in range(0, len(code), 4))


def redact_credentials(text: str) -> str:
    """Replace the user and password of each address in `text` by `…@`."""
    return _CREDENTIALS.sub("…@", text)


# --- lines

# Characters that end a line for a terminal, an editor or Python.
_ENDS = "\n\v\f\r\x1c-\x1e\x85\u2028\u2029"
_LINE_END = re.compile(f"\r\n|[{_ENDS}]")
_BEFORE_TEXT = re.compile(rf"(?:\A|\r\n|[{_ENDS}])(?=[^{_ENDS}])")
_AT_MARGIN = re.compile(rf"(?:\r\n|[{_ENDS}])(?=[^{_ENDS} ])")
INDENT = "  "


def breaks_line(text: str) -> bool:
    """Return whether `text` has more than one line."""
    return _LINE_END.search(text) is not None


def join_lines(text: str) -> str:
    """Replace each line ending in `text` by a space."""
    return _LINE_END.sub(" ", text)


def flatten(text: str) -> str:
    """Replace each newline or tab in `text` by a space."""
    return _BREAKS.sub(" ", text)


def excerpt(text: str, width: int) -> str:
    """Return the beginning of `text` on one line of `width` characters at most, cut with an ellipsis."""
    line = escape_invisible(" ".join(text[: width * 8].split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def indent_lines(text: str, indent: str = INDENT) -> str:
    """Indent each line with `indent`, so that none imitates a line that begins at the margin."""
    return _BEFORE_TEXT.sub(lambda end: end[0] + indent, text)


def indent_margin(text: str) -> str:
    """Put two spaces before each further line that begins at the margin."""
    return _AT_MARGIN.sub(lambda end: end[0] + INDENT, text)


def truncate(text: str, most: int) -> str:
    """Return `text`; if it has more than `most` characters, the first ones and a note that there are more."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… [the first {most} of {len(text)} characters]"


# --- quantities

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
# From this number on, a larger unit replaces the next smaller one.
_MIN_OF_UNIT = {"d": 2, "h": 2, "m": 10}


def format_duration(length: timedelta) -> str:
    """Format a duration in the one unit that fits: 93s, 12m, 5h, 3d. A negative one is 0s."""
    seconds = max(0, int(length.total_seconds()))
    for unit, size in _UNITS:
        if seconds >= _MIN_OF_UNIT[unit] * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def format_infinity(moment: datetime) -> str | None:
    """Return `infinity` or `-infinity` for an instant that represents it; otherwise None."""
    if moment >= LATEST:
        return "infinity"
    return "-infinity" if moment <= EARLIEST else None


def format_age(moment: datetime | None, now: datetime | None = None) -> str:
    """Format the time since `moment` as `format_duration` does, above 90 s in minutes; "-" for None."""
    if moment is None:
        return "-"
    length = (now or datetime.now(UTC)) - moment
    minutes = length // timedelta(minutes=1)
    if 1 <= minutes < _MIN_OF_UNIT["m"] and length > timedelta(seconds=90):
        return f"{minutes}m"
    return format_infinity(moment) or format_duration(length)


def format_time(moment: datetime | None) -> str | None:
    """Format an instant in UTC, to the second."""
    if moment is None:
        return None
    return format_infinity(moment) or moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def format_milliseconds(moment: datetime) -> str:
    """Format an instant in UTC, to the millisecond."""
    formatted = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}Z"
    return format_infinity(moment) or formatted


def format_count(number: int, noun: str) -> str:
    """Format a number and its noun: "1 card", "2 boxes", "3 entries"."""
    plural = noun + ("es" if noun.endswith(("s", "x", "ch")) else "s")
    if noun.endswith("try"):
        plural = f"{noun[:-1]}ies"
    return f"{number} {noun if number == 1 else plural}"


def format_tokens(tokens: int, *, exact: bool) -> str:
    """Format a number of tokens, with a `~` unless it is exact."""
    return f"{'' if exact else '~'}{tokens}"


def format_size(text: str) -> str:
    """Format the size of `text` in UTF-8, as `format_bytes` does."""
    return format_bytes(len(text.encode("utf-8", "surrogatepass")))


def format_bytes(number: int) -> str:
    """Format a number of bytes in the one unit that fits: 12B, 3.4kB, 5.6MB, 7.8GB."""
    for unit, length in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)):
        if number >= length:
            return f"{number / length:.1f}{unit}"
    return f"{number}B"


# --- commands that are printed to be copied; names in them may come from other programs and contain anything


def quote_word(word: str) -> str:
    """Quote a word for a shell, on one line and without characters that cannot be seen."""
    import shlex  # most commands print no command

    if is_visible(word):
        return shlex.quote(word)
    return "$'" + "".join(map(_shell_escape, word)) + "'"


def _shell_escape(character: str) -> str:
    if character in "'\\":
        return "\\" + character
    return character if is_visible(character) else f"\\U{ord(character):08x}"


def quote_argument(name: str) -> str:
    """Quote the last argument of a command, after `--` if it would be parsed as an option."""
    return f"-- {quote_word(name)}" if name.startswith("-") else quote_word(name)


def command_line(words: Sequence[str], *options: str) -> str:
    """Return the line of `cbx` and these words: noun, verb, the one argument of the verb, its options.

    `options` come after those. An argument that would be parsed as an option is the last.
    """
    noun_and_verb, name, own = words[:2], words[2:3], words[3:]
    is_option_like = any(each.startswith("-") for each in name)
    plain = [*noun_and_verb, *([] if is_option_like else name), *own, *options]
    line = " ".join(map(quote_word, ["cbx", *plain]))
    return f"{line} {quote_argument(name[0])}" if is_option_like else line


# --- the words of a search; the database decides what a search finds

# Characters shown before the first match.
_CONTEXT_CHARACTERS = 24


def search_words(query: str) -> list[str]:
    """Return the words that a search looks for, without those that it excludes and without `or`."""
    wanted = re.sub(r'(?<!\S)-("[^"]*"|\S+)', " ", query).replace('"', " ")
    return [word for word in wanted.split() if word.casefold() != "or"]


def word_pattern(words: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern of these words in any case; whole words, in scripts with spaces between words."""
    if not words:
        return None
    return re.compile("|".join(map(_word, sorted(words, key=len, reverse=True))), re.IGNORECASE)


def _word(word: str) -> str:
    before = r"(?<![^\W_])" if _is_spaced(word[0]) else ""
    behind = r"(?![^\W_])" if _is_spaced(word[-1]) else ""
    return before + re.escape(word) + behind


def _is_spaced(character: str) -> bool:
    """Return whether the script of this letter or digit has spaces between words: East Asian ones do not."""
    return character.isalnum() and not "\u1100" <= character <= "\uffff"


def skip_to_match(text: str, wanted: re.Pattern[str] | None) -> str:
    """Return the text from shortly before the first match; all of it if there is none."""
    place = wanted.search(text) if wanted else None
    if place is None or place.start() <= _CONTEXT_CHARACTERS:
        return text
    start = place.start() - _CONTEXT_CHARACTERS
    space = text.find(" ", start, place.start())
    return "…" + text[space + 1 if space >= 0 else start :]


# --- values that people wrote: their types, paths and likely intentions

ValuePath: TypeAlias = tuple[str | int, ...]
"""The path from the top of a value to one of its parts: keys and list positions."""

_WIDTH = 60
_BARE_KEY = re.compile(r"[\w-]+")


def short_repr(text: str) -> str:
    """Return `repr(text)`, without its middle if it is long."""
    whole = repr(text)
    return whole if len(whole) <= _WIDTH else f"{whole[: _WIDTH - 20]}…{whole[-19:]}"


def describe_value(value: object) -> str:
    """Describe a value for a message, to be read after "found": "the string 'yes'", "a list"."""
    from decimal import Decimal  # needed only for an error

    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {short_repr(value)}"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case int() | float() | Decimal():
            return f"the number {str(value)[:_WIDTH]}"
        case _:
            return f"a {type(value).__name__}"


def json_type(value: object) -> str:
    """Name the type of a JSON value: "a string", "null", "a list"…"""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for kind, name in ((str, "a string"), (dict, "an object"), ((list, tuple), "a list")):
        if isinstance(value, kind):
            return name
    return "a number"


def format_path(where: ValuePath) -> str:
    """Format a path for people: `context_packing_config.pack_arguments[1].arg_key`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_key(step)}" for step in where)
    return "".join(steps).removeprefix(".")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) and len(key) <= _WIDTH else short_repr(key)


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the entry of `known` that `word` most likely misspells, or None."""
    import difflib  # needed only for an error

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'arg_key'?", or "" if nothing in `known` is close to `word`."""
    match = closest(word, known)
    return f"; did you mean {match!r}?" if match else ""


# --- messages of errors that occur in many places


def conflict_message(*options: str) -> str:
    """Return "--full and --columns cannot be combined"."""
    return f"{' and '.join(options)} cannot be combined"


def required_message(name: str) -> str:
    """Return "--target is required"."""
    return f"{name} is required"


def unknown_message(noun: str, name: str, known: Iterable[str] = ()) -> str:
    """Return "unknown format 'antropic'; did you mean 'anthropic'?"."""
    return f"unknown {noun} {short_repr(name)}{did_you_mean(name, known)}"


def invalid_message(noun: str, value: str) -> str:
    """Return "invalid duration 'soon'"."""
    return f"invalid {noun} {short_repr(value)}"


def ambiguous_message(given: str, noun: str, matches: Sequence[str], *, more: bool = False) -> str:
    """Return "'0198' is ambiguous; it matches 2 boxes: 0198a…, 0198b…"; `more` if further ones match, too."""
    number = f"{'more than ' if more else ''}{format_count(len(matches), noun)}"
    return f"{short_repr(given)} is ambiguous; it matches {number}: {', '.join(matches)}"


# --- times that people write

_AGO = r"(?P<number>[0-9]*[.,]?[0-9]+)(?P<unit>[smhdw])"
_UNIT_NAMES = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MAX_SPAN = timedelta(days=36_500)


def parse_time(text: str | None, option: str) -> datetime | timedelta | None:
    """Parse an RFC 3339 time (UTC without an offset), or an age such as 90m. Raises UsageError."""
    if text is None:
        return None
    if re.fullmatch(_AGO, text, re.ASCII):
        return parse_duration(text, f"{option}: ")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option}: {invalid_message('time', text)}",
            hint="for example 2026-11-22T09:30:00Z, or 90m for 90 minutes ago",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_duration(text: str, place: str = "") -> timedelta | None:
    """Return the duration of a text such as 90m; None if it is not one. Raises UsageError naming `place`."""
    parts = re.fullmatch(_AGO, text, re.ASCII)
    if parts is None:
        return None
    number, unit = parts["number"], parts["unit"]
    if not number.isdigit():
        raise UsageError(
            f"{place}{text!r} is not a whole number of {_UNIT_NAMES[unit]}",
            hint="90m is one and a half hours",
        )
    try:
        # Longer numbers exceed the limit in any case.
        duration = timedelta(**{_UNIT_NAMES[unit]: int(number[:18])})
    except OverflowError:
        duration = timedelta.max
    if duration > _MAX_SPAN:
        raise UsageError(
            f"{place}{text!r} is more than 100 years", hint="leave the option out for all of time"
        )
    return duration
