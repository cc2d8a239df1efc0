"""What two sequences of strings have in common, in order: the ground of comparing boxes and texts.

Pure, and fast enough for tens of thousands of items that repeat as ids, lines and words do.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# An item with more pairs of places than this has only those compared that are equally far from the beginning
# or from the end: all of them would be a square, and long lists of one item would take minutes.
_MANY_PAIRS = 256


class Pair(NamedTuple):
    """A position in one sequence and the position in the other that it belongs to, each from 0."""

    a: int
    b: int


def longest_common(a: Sequence[str], b: Sequence[str]) -> list[Pair]:
    """The longest pairing of equal items whose positions rise in both; a long one where items are many."""
    head = _common_beginning(a, b)
    tail = _common_beginning(a[head:][::-1], b[head:][::-1])
    middle = _candidates(a[head : len(a) - tail], b[head : len(b) - tail])
    return [
        *(Pair(place, place) for place in range(head)),
        *(Pair(head + pair.a, head + pair.b) for pair in longest_rising(middle)),
        *(Pair(len(a) - left, len(b) - left) for left in range(tail, 0, -1)),
    ]


def _common_beginning(a: Sequence[str], b: Sequence[str]) -> int:
    length = min(len(a), len(b))
    return next((place for place in range(length) if a[place] != b[place]), length)


def _candidates(a: Sequence[str], b: Sequence[str]) -> list[Pair]:
    """The pairs of places that hold the same item."""
    places_b = _places(b)
    return [
        pair for item, own in _places(a).items() if item in places_b for pair in _pairs(own, places_b[item])
    ]


def _places(items: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(item, []).append(place)
    return places


def _pairs(a: Sequence[int], b: Sequence[int]) -> list[Pair]:
    if len(a) * len(b) <= _MANY_PAIRS:
        return [Pair(one, other) for one in a for other in b]
    from_the_ends = {*zip(a, b, strict=False), *zip(reversed(a), reversed(b), strict=False)}
    return [Pair(*pair) for pair in from_the_ends]


def longest_rising(pairs: Iterable[Pair]) -> list[Pair]:
    """A longest choice of `pairs` whose positions rise in both sequences, in order."""
    # Patience sorting. Among pairs of one place of `a` those of `b` fall, so that no two of them are chosen.
    ordered = sorted(pairs, key=lambda pair: (pair.a, -pair.b))
    lowest: list[int] = []  # by length, the lowest place of `b` that a choice of it ends in
    ends: list[int] = []  # by length, the index in `ordered` of that end
    before: list[int] = []  # by index, the index of the pair that precedes it in its choice
    for index, pair in enumerate(ordered):
        length = bisect_left(lowest, pair.b)
        before.append(ends[length - 1] if length else -1)
        lowest[length : length + 1] = [pair.b]
        ends[length : length + 1] = [index]
    chosen = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chosen.append(ordered[index])
        index = before[index]
    return chosen[::-1]
