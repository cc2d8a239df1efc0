"""Differences between two boxes, and between two texts. This module is pure.

It computes the longest common subsequence of two sequences, compares id lists and makes a JSON Patch of the
result, and compares texts by lines and words. An id may occur several times in a box, so it pairs positions.
Other modules decide how differences are shown.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import chain, groupby
from typing import Any, Literal, NamedTuple

import msgspec

from cardbox_cli.model.boxes import Box, KnownCards, Slot, slot_of

# --- common items of two sequences: fast for tens of thousands of items, of which many may repeat


# If an item has more possible pairs than this, only positions at an equal distance from one end are paired.
# The number of all pairs is quadratic, and would take minutes for a long list of one item.
_MAX_PAIRS = 256


class Pair(NamedTuple):
    """A position in one sequence and the matching position in the other, each from 0."""

    a: int
    b: int


def longest_common(a: Sequence[str], b: Sequence[str]) -> list[Pair]:
    """Pair as many equal items as possible, in rising order. May miss pairs of items that repeat often."""
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
    places_b = _positions(b)
    shared = ((own, places_b[item]) for item, own in _positions(a).items() if item in places_b)
    return [pair for own, other in shared for pair in _pairs(own, other)]


def _positions(items: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(item, []).append(place)
    return places


def _pairs(a: Sequence[int], b: Sequence[int]) -> list[Pair]:
    if len(a) * len(b) <= _MAX_PAIRS:
        return [Pair(one, other) for one in a for other in b]
    from_the_ends = {*zip(a, b, strict=False), *zip(reversed(a), reversed(b), strict=False)}
    return [Pair(*pair) for pair in from_the_ends]


def longest_rising(pairs: Iterable[Pair]) -> list[Pair]:
    """Return a longest subset of `pairs` whose positions rise in both sequences, in order."""
    # Patience sorting. Pairs with the same `a` are sorted by falling `b`, so that at most one is chosen.
    ordered = sorted(pairs, key=lambda pair: (pair.a, -pair.b))
    lowest: list[int] = []  # For each length, the lowest `b` at which a chain of that length ends.
    ends: list[int] = []  # For each length, the index in `ordered` of that end.
    before: list[int] = []  # For each index in `ordered`, the index of the previous pair in its chain.
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


# --- boxes


Kind = Literal["removed", "added", "moved", "changed"]

# Slots of a box by position, ascending.
Slots = Mapping[int, Slot]


class IdDiff(NamedTuple):
    """The comparison of two id lists. Each field is in ascending order.

    `kept` has the pairs that are in the same order in both lists, and `moved` has all other pairs. `removed`
    has the unpaired positions of the first list, and `added` the unpaired positions of the second list.
    """

    kept: list[Pair]
    moved: list[Pair]
    removed: list[int]
    added: list[int]


class BoxChange(msgspec.Struct, frozen=True):
    """One difference: a slot of the first box and a slot of the second box, or None if a box has none."""

    kind: Kind
    a: Slot | None
    b: Slot | None


class BoxDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of box `b` from box `a`. `pairs` has the positions of kept, moved and changed cards."""

    a: Box
    b: Box
    changes: list[BoxChange]
    pairs: list[Pair]

    @property
    def patch(self) -> list[dict[str, Any]]:
        """Return the JSON Patch (RFC 6902) that converts `{"card_ids": …}` from box `a` to box `b`."""
        return json_patch(self.a.card_ids, self.b.card_ids, self.pairs)


def diff_ids(a: Sequence[str], b: Sequence[str]) -> IdDiff:
    """Compare the id list `b` with `a`. Finds the fewest moves, or almost, if an id has many positions."""
    kept = longest_common(a, b)
    kept_a, kept_b = {pair.a for pair in kept}, {pair.b for pair in kept}
    left: dict[str, list[int]] = {}
    for place in reversed(range(len(a))):
        if place not in kept_a:
            left.setdefault(a[place], []).append(place)
    moved, added = list[Pair](), list[int]()
    for place, card_id in enumerate(b):
        if place in kept_b:
            continue
        if left.get(card_id):
            moved.append(Pair(left[card_id].pop(), place))
        else:
            added.append(place)
    return IdDiff(kept, sorted(moved), sorted(place for places in left.values() for place in places), added)


def compare_boxes(a: Box, b: Box, ids: IdDiff, known: KnownCards) -> BoxDiff:
    """Compare two boxes. `ids` is the comparison of their ids, `known` has the cards and their states.

    A removed and an added card count as one *changed* card if one was edited from the other. They also do if
    they have the same type and role, and are between the same kept cards.
    """
    old = {place: slot_of(place, a.card_ids, known) for place in ids.removed}
    new = {place: slot_of(place, b.card_ids, known) for place in ids.added}
    changed = _pair_edited(old, new)
    changed += _pair_replaced(*_unpaired(old, new, changed), ids)
    gone, come = _unpaired(old, new, changed)
    changes = [BoxChange("removed", slot, None) for slot in gone.values()]
    changes += [BoxChange("added", None, slot) for slot in come.values()]
    changes += [BoxChange("changed", old[pair.a], new[pair.b]) for pair in changed]
    changes += [
        BoxChange("moved", slot_of(pair.a, a.card_ids, known), slot_of(pair.b, b.card_ids, known))
        for pair in ids.moved
    ]
    return BoxDiff(
        a=a,
        b=b,
        changes=sorted(changes, key=lambda change: _sort_key(change, ids)),
        pairs=[*ids.kept, *ids.moved, *changed],
    )


def json_patch(a: Sequence[str], b: Sequence[str], pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    """Return the JSON Patch from `a` to `b`. `pairs` are corresponding positions, and no position repeats.

    An item that changes its order relative to other items is removed and added again.
    """
    staying = longest_rising(pairs)
    in_a, in_b = {pair.a for pair in staying}, {pair.b for pair in staying}
    steps = [_step("replace", pair.a, value=b[pair.b]) for pair in staying if a[pair.a] != b[pair.b]]
    steps += [_step("remove", place) for place in reversed(range(len(a))) if place not in in_a]
    return steps + [_step("add", place, value=b[place]) for place in range(len(b)) if place not in in_b]


def _step(operation: str, place: int, **more: Any) -> dict[str, Any]:
    return {"op": operation, "path": f"/card_ids/{place}", **more}


def _unpaired(old: Slots, new: Slots, paired: Sequence[Pair]) -> tuple[Slots, Slots]:
    taken_a, taken_b = {pair.a for pair in paired}, {pair.b for pair in paired}
    return (
        {place: slot for place, slot in old.items() if place not in taken_a},
        {place: slot for place, slot in new.items() if place not in taken_b},
    )


def _pair_edited(old: Slots, new: Slots) -> list[Pair]:
    """Return the pairs of a removed card and the added card that was edited from it."""
    origins: dict[str, list[int]] = {}
    for place, slot in reversed(list(old.items())):
        origins.setdefault(slot.card_id, []).append(place)
    pairs = []
    for place, slot in new.items():
        origin = slot.card.metadata.get("edited_from") if slot.card else None
        if isinstance(origin, str) and origins.get(origin):
            pairs.append(Pair(origins[origin].pop(), place))
    return pairs


def _pair_replaced(old: Slots, new: Slots, ids: IdDiff) -> list[Pair]:
    """Pair a removed and an added card of equal type and role that are between the same kept cards."""
    waiting: dict[tuple[int, str, str | None], list[int]] = {}
    for place, slot in reversed(list(old.items())):
        if slot.card is not None:
            gap = bisect_left(ids.kept, Pair(place, 0))
            waiting.setdefault((gap, slot.card.type, slot.card.role), []).append(place)
    kept_b = [pair.b for pair in ids.kept]
    pairs = []
    for place, slot in new.items():
        if slot.card is not None:
            candidates = waiting.get((bisect_left(kept_b, place), slot.card.type, slot.card.role))
            if candidates:
                pairs.append(Pair(candidates.pop(), place))
    return pairs


def _sort_key(change: BoxChange, ids: IdDiff) -> tuple[int, int, int]:
    """Return the sort key of a change: its position in the second box, or where a removed card was."""
    if change.b is not None:
        return change.b.position, 1, 0
    assert change.a is not None
    before = bisect_left(ids.kept, Pair(change.a.position, 0))
    return ids.kept[before - 1].b + 1 if before else 0, 0, change.a.position


# --- texts


class TextPart(NamedTuple):
    """A part of both texts ("same"), of only the old text ("removed") or of only the new text ("added")."""

    kind: Literal["same", "removed", "added"]
    text: str


# (True if both texts have the items, items of the old text, items of the new text)
Span = tuple[bool, Sequence[str], Sequence[str]]

# A word for the comparison: a number, a character of a script without word spaces, a word, space or a sign.
_WORD = re.compile(
    r"\d+(?:[.:]\d+)+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]"
    r"|[^\W\u3040-\ud7ff\uf900-\ufaff]+|\s+|."
)
# Changed lines are compared as a whole if they have more words than this, or share a smaller part of them.
_MAX_WORDS = 20_000
_MIN_SHARED = 0.3
_MAX_GAP = 40_000

# The amount of equal text that is shown on each side of a change.
_CONTEXT_LINES = 3
_CONTEXT_CHARACTERS = 160


def text_diff(old: str, new: str) -> list[TextPart]:
    """Return the parts of both texts in order. Joined without the added parts, they are `old`."""
    pieces: list[TextPart] = []
    for is_same, one, other in _spans(old.splitlines(keepends=True), new.splitlines(keepends=True)):
        if is_same:
            pieces.append(TextPart("same", "".join(one)))
        else:
            pieces += _words_diff("".join(one), "".join(other))
    return _merge_changes(pieces)


def abridge(pieces: Sequence[TextPart]) -> list[TextPart]:
    """Replace equal text that is far from every change by `…`."""
    last = len(pieces) - 1
    return [
        TextPart("same", _abridged(text, index > 0, index < last)) if kind == "same" else TextPart(kind, text)
        for index, (kind, text) in enumerate(pieces)
    ]


def _words_diff(old: str, new: str) -> list[TextPart]:
    """Compare differing lines by words. A line break at the end of both sides is an equal part."""
    if old.endswith("\n") and new.endswith("\n"):
        return [*_words_diff(old[:-1], new[:-1]), TextPart("same", "\n")]
    one, other = _WORD.findall(old), _WORD.findall(new)
    if max(len(one), len(other)) > _MAX_WORDS:
        return _changed_pieces(old, new)
    pieces: list[TextPart] = []
    for is_same, left, right in _absorb_blanks(list(_spans(one, other))):
        pieces += [TextPart("same", left)] if is_same else _changed_pieces(left, right)
    shared = sum(len(piece.text) for piece in pieces if piece.kind == "same")
    return pieces if shared >= _MIN_SHARED * max(len(old), len(new)) else _changed_pieces(old, new)


def _absorb_blanks(spans: Sequence[Span]) -> Iterator[tuple[bool, str, str]]:
    """Yield the spans as texts. Blank text between two changes counts as changed."""
    last = len(spans) - 1
    for index, (is_same, one, other) in enumerate(spans):
        left, right = "".join(one), "".join(other)
        is_island = is_same and 0 < index < last and left.isspace() and "\n" not in left
        yield is_same and not is_island, left, right


def _spans(old: Sequence[str], new: Sequence[str]) -> Iterator[Span]:
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
    """Yield the spans between two common items. Equal items that occur very often may be in them."""
    if len(old) * len(new) > _MAX_GAP or set(old).isdisjoint(new):
        if old or new:
            yield False, old, new
        return
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield tag == "equal", old[i1:i2], new[j1:j2]


def _changed_pieces(old: str, new: str) -> list[TextPart]:
    return [piece for piece in (TextPart("removed", old), TextPart("added", new)) if piece.text]


def _merge_changes(pieces: Iterable[TextPart]) -> list[TextPart]:
    merged: list[TextPart] = []
    for is_same, group in groupby(pieces, key=lambda piece: piece.kind == "same"):
        run = list(group)
        old = "".join(piece.text for piece in run if piece.kind != "added")
        new = "".join(piece.text for piece in run if piece.kind != "removed")
        merged += [TextPart("same", old)] if is_same else _changed_pieces(old, new)
    return merged


def _abridged(text: str, follows_a_change: bool, precedes_a_change: bool) -> str:
    head = _beginning(text) if follows_a_change else ""
    tail = _beginning(text[::-1])[::-1] if precedes_a_change else ""
    if len(head) + len(tail) >= len(text):
        return text
    before = "\n" if head and text[len(head)] == "\n" else ""
    after = "\n" if tail and text[-len(tail) - 1] == "\n" else ""
    return f"{head}{before}…{after}{tail}"


def _beginning(text: str) -> str:
    return "\n".join(text.split("\n", _CONTEXT_LINES)[:_CONTEXT_LINES])[:_CONTEXT_CHARACTERS]
