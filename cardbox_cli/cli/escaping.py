"""Making text safe to show: nothing that a card says may drive the terminal."""

import re

# C0 but newline and tab, DEL, C1; then the characters that reorder or hide what is read (bidi controls,
# zero-width characters, line separators), and lone surrogates, which no terminal can encode.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def printable(text: str) -> str:
    """`text` with every character that could act on a terminal spelled out, as `\\x1b`."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def flat(text: str) -> str:
    """`text` on one line: each line break or tab is a space."""
    return _BREAKS.sub(" ", text)


_BREAKS = re.compile("[\t\n]")


def json_safe(text: str) -> str:
    """JSON `text` with the same characters as JSON escapes: it means the same."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str, width: int) -> str:
    """The beginning of `text` on one line, at most `width` characters, an ellipsis where it was cut."""
    line = printable(" ".join(text[: width * 8].split()))
    return line if len(line) <= width else line[: width - 1] + "…"
