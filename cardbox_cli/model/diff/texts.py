"""What differs between two texts, line by line and within changed lines word by word.

Pure. Owns the comparing and the leaving out of what is far from any change; knows no colours.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import chain, groupby
from typing import Literal, NamedTuple

from cardbox_cli.model.diff.sequences import longest_common


class Piece(NamedTuple):
    """A stretch of text: "same" in both texts, of the old one alone ("removed") or of the new ("added")."""

    kind: Literal["same", "removed", "added"]
    text: str


# Whether the items are in both texts, those of the old one, those of the new.
Span = tuple[bool, Sequence[str], Sequence[str]]

# A number with its points, a single character of the scripts that put no spaces between words, a word, space,
# or a mark.
_WORD = re.compile(
    r"\d+(?:[.:]\d+)+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]"
    r"|[^\W\u3040-\ud7ff\uf900-\ufaff]+|\s+|."
)
# More words than this on a side are compared as a whole, and so are texts that share less than this part.
_MOST_WORDS = 20_000
_LEAST_SHARED = 0.3
_LARGE_GAP = 40_000

# What is shown of an equal stretch beside a change, on each side.
_NEAR_LINES = 3
_NEAR_CHARACTERS = 160


def text_diff(old: str, new: str) -> list[Piece]:
    """The pieces of both texts in order. All but the added join to `old`, all but the removed to `new`."""
    pieces: list[Piece] = []
    for is_same, one, other in _spans(old.splitlines(keepends=True), new.splitlines(keepends=True)):
        if is_same:
            pieces.append(Piece("same", "".join(one)))
        else:
            pieces += _words_diff("".join(one), "".join(other))
    return _joined(pieces)


def abridged(pieces: Sequence[Piece]) -> list[Piece]:
    """`pieces` with `…` for equal text that is far from every change."""
    last = len(pieces) - 1
    return [
        Piece(
            piece.kind, _abridged(piece.text, index > 0, index < last) if piece.kind == "same" else piece.text
        )
        for index, piece in enumerate(pieces)
    ]


def _words_diff(old: str, new: str) -> list[Piece]:
    """The pieces of lines that differ. A line break that ends both is the same."""
    if old.endswith("\n") and new.endswith("\n"):
        return [*_words_diff(old[:-1], new[:-1]), Piece("same", "\n")]
    one, other = _WORD.findall(old), _WORD.findall(new)
    if max(len(one), len(other)) > _MOST_WORDS:
        return _apart(old, new)
    pieces: list[Piece] = []
    for is_same, left, right in _without_islands(list(_spans(one, other))):
        pieces += [Piece("same", left)] if is_same else _apart(left, right)
    shared = sum(len(piece.text) for piece in pieces if piece.kind == "same")
    return pieces if shared >= _LEAST_SHARED * max(len(old), len(new)) else _apart(old, new)


def _without_islands(spans: Sequence[Span]) -> Iterator[tuple[bool, str, str]]:
    """The spans as texts; blanks between two changes belong to them, since no reader looks for a blank."""
    last = len(spans) - 1
    for index, (is_same, one, other) in enumerate(spans):
        left, right = "".join(one), "".join(other)
        is_island = is_same and 0 < index < last and left.isspace() and "\n" not in left
        yield is_same and not is_island, left, right


def _spans(old: Sequence[str], new: Sequence[str]) -> Iterator[Span]:
    """What the sequences have in common and what not, in turn."""
    for is_same, group in groupby(_steps(old, new), key=lambda span: span[0]):
        _, ones, others = zip(*group, strict=True)
        yield is_same, list(chain.from_iterable(ones)), list(chain.from_iterable(others))


def _steps(old: Sequence[str], new: Sequence[str]) -> Iterator[Span]:
    a = b = 0
    for pair in longest_common(old, new):
        yield from _gap(old[a : pair.a], new[b : pair.b])
        a, b = pair.a + 1, pair.b + 1
        yield True, old[a - 1 : a], new[b - 1 : b]
    yield from _gap(old[a:], new[b:])


def _gap(old: Sequence[str], new: Sequence[str]) -> Iterator[Span]:
    """What stands between two common items. Where some items are very many it may hold common ones, too."""
    if len(old) * len(new) > _LARGE_GAP or set(old).isdisjoint(new):
        if old or new:
            yield False, old, new
        return
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield tag == "equal", old[i1:i2], new[j1:j2]


def _apart(old: str, new: str) -> list[Piece]:
    return [piece for piece in (Piece("removed", old), Piece("added", new)) if piece.text]


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """`pieces` with neighbouring changes made into one removed and one added piece."""
    joined: list[Piece] = []
    removed = added = ""
    for piece in [*pieces, Piece("same", "")]:
        match piece.kind:
            case "removed":
                removed += piece.text
            case "added":
                added += piece.text
            case "same":
                joined += _apart(removed, added)
                removed = added = ""
                if piece.text and joined and joined[-1].kind == "same":
                    joined[-1] = Piece("same", joined[-1].text + piece.text)
                elif piece.text:
                    joined.append(piece)
    return joined


def _abridged(text: str, follows_a_change: bool, precedes_a_change: bool) -> str:
    head = _beginning(text) if follows_a_change else ""
    tail = _beginning(text[::-1])[::-1] if precedes_a_change else ""
    if len(head) + len(tail) >= len(text):
        return text
    before = "\n" if head and text[len(head)] == "\n" else ""
    after = "\n" if tail and text[-len(tail) - 1] == "\n" else ""
    return f"{head}{before}…{after}{tail}"


def _beginning(text: str) -> str:
    lines = text.split("\n", _NEAR_LINES)[:_NEAR_LINES]
    return "\n".join(lines)[:_NEAR_CHARACTERS]
