"""What of a text people see: characters that act on a terminal or hide, lines that could pass for others.

Pure. How such characters are spelled is `escaping.py`'s.
"""

import re

# C0 but newline and tab, DEL, C1; the characters that reorder or hide what is read: bidi controls, line
# separators, all that Unicode calls default-ignorable (zero-width and filling ones, variation selectors,
# tags); and lone surrogates, which no terminal can encode.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
)

# Whatever ends a line, for a terminal, an editor or Python.
_ENDS = "\n\v\f\r\x1c-\x1e\x85\u2028\u2029"
_LINE_END = re.compile(f"\r\n|[{_ENDS}]")
_BEFORE_TEXT = re.compile(rf"(?:\A|\r\n|[{_ENDS}])(?=[^{_ENDS}])")
_AT_MARGIN = re.compile(rf"(?:\r\n|[{_ENDS}])(?=[^{_ENDS} ])")
INDENT = "  "


def is_visible(text: str) -> bool:
    """Whether `text` is one line of characters that can be seen, and are what they look like."""
    return text.isprintable() and UNSEEN.search(text) is None


def unseen(text: str) -> str | None:
    """The first character of `text` that cannot be seen, or is not what it looks like."""
    return next((character for character in text if not is_visible(character)), None)


def breaks_line(text: str) -> bool:
    """Whether `text` takes more than a line."""
    return _LINE_END.search(text) is not None


def on_one_line(text: str) -> str:
    """`text` with a space for each end of a line."""
    return _LINE_END.sub(" ", text)


def indented(text: str, indent: str = INDENT) -> str:
    """`text` with `indent` before each line of it, so that none passes for one that begins at the margin."""
    return _BEFORE_TEXT.sub(lambda end: end[0] + indent, text)


def one_entry(text: str) -> str:
    """`text` with its further lines below the first: two spaces before each that begins at the margin."""
    return _AT_MARGIN.sub(lambda end: end[0] + INDENT, text)
