"""Making text safe to show: nothing that a card says may drive the terminal."""

import re

from cardbox_cli.model.text.visible_text import UNSEEN


def printable(text: str) -> str:
    """`text` with every character that could act on a terminal spelled out, as `\\x1b`."""
    return UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def flat(text: str) -> str:
    """`text` on one line: each line break or tab is a space."""
    return _BREAKS.sub(" ", text)


def spelled(text: str) -> str:
    """`text` as `printable` makes it, its line breaks and tabs spelled, too: two ids never look the same."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


_BREAKS = re.compile("[\t\n]")


def json_safe(text: str) -> str:
    """JSON `text` with the same characters as JSON escapes: it means the same."""
    return UNSEEN.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    code = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[place : place + 4]}" for place in range(0, len(code), 4))


def one_line(text: str, width: int) -> str:
    """The beginning of `text` on one line, at most `width` characters, an ellipsis where it was cut."""
    line = printable(" ".join(text[: width * 8].split()))
    return line if len(line) <= width else line[: width - 1] + "…"
