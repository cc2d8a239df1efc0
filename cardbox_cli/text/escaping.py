"""Escaping of characters that control a terminal or are invisible. Handling of line breaks and long texts.

No text of a card may control the terminal, imitate another line, or be invisible.
"""

import re

# C0 except newline and tab, DEL, C1. Then characters that reorder or hide text: bidi controls, line
# separators, and all default-ignorable characters of Unicode (zero-width ones, fillers, variation selectors,
# tags). Then lone surrogates, which a terminal cannot encode.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
)
_BREAKS = re.compile("[\t\n]")
_CREDENTIALS = re.compile(r"(?<=://)[^\s\"]*@")


def is_visible(text: str) -> bool:
    """Return whether `text` is one line of visible characters."""
    return text.isprintable() and UNSEEN.search(text) is None


def first_invisible(text: str) -> str | None:
    return next((character for character in text if not is_visible(character)), None)


def escape_invisible(text: str) -> str:
    """Return `text` with each character that could control a terminal as an escape, for example `\\x1b`."""
    return UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def escape_line(text: str) -> str:
    """Escape line breaks and tabs, too, so that two different ids never look the same."""
    return escape_invisible(text).replace("\n", "\\n").replace("\t", "\\t")


def escape_json(text: str) -> str:
    """Return JSON in which the characters of `UNSEEN` are JSON escapes. Its meaning is the same."""
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
    return _LINE_END.search(text) is not None


def join_lines(text: str) -> str:
    return _LINE_END.sub(" ", text)


def flatten(text: str) -> str:
    return _BREAKS.sub(" ", text)


def excerpt(text: str, width: int) -> str:
    """Return the beginning of `text` on one line of `width` characters at most, cut with an ellipsis."""
    line = escape_invisible(" ".join(text[: width * 8].split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def indent_lines(text: str, indent: str = INDENT) -> str:
    """Indent each line with `indent`, so that no line looks like one that begins at the margin."""
    return _BEFORE_TEXT.sub(lambda end: end[0] + indent, text)


def indent_margin(text: str) -> str:
    """Put two spaces before each line, except the first, that begins at the margin."""
    return _AT_MARGIN.sub(lambda end: end[0] + INDENT, text)


def truncate(text: str, most: int) -> str:
    """Return `text`. If it is longer than `most` characters, return the first `most` of them and a note."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… [the first {most} of {len(text)} characters]"
