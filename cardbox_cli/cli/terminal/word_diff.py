"""How two texts are compared for people: word by word, in colours or in the marks of git's `--word-diff`."""

from cardbox_cli.cli.terminal.colours import coloured
from cardbox_cli.model.diff import Piece, abridged, text_diff

INDENT = "    "


def compared(before: str, after: str, *, full: bool = False) -> list[tuple[str, str]]:
    """What differs between two texts, as painted pieces; with `full` what is far from any change, too."""
    pieces = text_diff(before, after)
    return [("", INDENT), *(_painted(piece) for piece in (pieces if full else abridged(pieces)))]


def indented(text: str) -> str:
    """A text below the line that it belongs to."""
    return INDENT + text.replace("\n", f"\n{INDENT}")


def _painted(piece: Piece) -> tuple[str, str]:
    text = indented(piece.text)[len(INDENT) :]
    if piece.kind == "same":
        return "", text
    removed = piece.kind == "removed"
    if coloured():
        return ("red" if removed else "green"), text
    return "", f"[-{text}-]" if removed else f"{{+{text}+}}"
