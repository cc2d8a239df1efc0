"""What differs between two boxes: which cards went, came, moved, or stand where others stood.

Pure. Owns the comparing of id lists, and the JSON Patch that leads from one list to the other; what the ids
stand for is handed in. An id may stand several times in a box, so every comparison is one of places.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from cardbox_cli.model.boxes import Box, Known, Slot, slot_of
from cardbox_cli.model.diff.sequences import Pair, longest_common, longest_rising

Kind = Literal["removed", "added", "moved", "changed"]

# Places of a box by their position, ascending.
Slots = Mapping[int, Slot]


class IdDiff(NamedTuple):
    """What became of every place of two id lists, each part in ascending order.

    `kept` places stand in the same order in both, `moved` ones elsewhere; `removed` are places of the first
    list alone, `added` of the second.
    """

    kept: list[Pair]
    moved: list[Pair]
    removed: list[int]
    added: list[int]


class Change(msgspec.Struct, frozen=True):
    """One difference: the place in the first box, the place in the second; None where there is none."""

    kind: Kind
    a: Slot | None
    b: Slot | None


class BoxDiff(msgspec.Struct, frozen=True, kw_only=True):
    """How box `b` differs from box `a`, as a reader of `b` meets the changes.

    `pairs` are the places of both that are one: kept, moved and changed.
    """

    a: Box
    b: Box
    changes: list[Change]
    pairs: list[Pair]

    @property
    def patch(self) -> list[dict[str, Any]]:
        """A JSON Patch (RFC 6902), made anew: applied to `{"card_ids": …}` of `a` it gives that of `b`."""
        return patch(self.a.card_ids, self.b.card_ids, self.pairs)


def diff(a: Sequence[str], b: Sequence[str]) -> IdDiff:
    """How the id list `b` differs from `a`, with as few moves as there can be.

    Where one id has very many places in both lists, with few moves.
    """
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


def compare(a: Box, b: Box, found: IdDiff, known: Known) -> BoxDiff:
    """The difference of two boxes, `found` in their ids, with what the ids that differ stand for.

    A removed and an added card are one *changed* card when the one was edited from the other, or when they
    stand at the same place and have the same type and role.
    """
    old = {place: slot_of(place, a.card_ids, known) for place in found.removed}
    new = {place: slot_of(place, b.card_ids, known) for place in found.added}
    changed = _edited(old, new)
    changed += _replaced(*_others(old, new, changed), found)
    gone, come = _others(old, new, changed)
    changes = [Change("removed", slot, None) for slot in gone.values()]
    changes += [Change("added", None, slot) for slot in come.values()]
    changes += [Change("changed", old[pair.a], new[pair.b]) for pair in changed]
    changes += [
        Change("moved", slot_of(pair.a, a.card_ids, known), slot_of(pair.b, b.card_ids, known))
        for pair in found.moved
    ]
    return BoxDiff(
        a=a,
        b=b,
        changes=sorted(changes, key=lambda change: _where(change, found)),
        pairs=[*found.kept, *found.moved, *changed],
    )


def patch(a: Sequence[str], b: Sequence[str], pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    """The JSON Patch from `a` to `b` in which the places of each pair are one; no place has two pairs.

    What changes its place among the others is removed and added again.
    """
    staying = longest_rising(pairs)
    in_a, in_b = {pair.a for pair in staying}, {pair.b for pair in staying}
    steps = [_step("replace", pair.a, value=b[pair.b]) for pair in staying if a[pair.a] != b[pair.b]]
    steps += [_step("remove", place) for place in reversed(range(len(a))) if place not in in_a]
    return steps + [_step("add", place, value=b[place]) for place in range(len(b)) if place not in in_b]


def _step(operation: str, place: int, **more: Any) -> dict[str, Any]:
    return {"op": operation, "path": f"/card_ids/{place}", **more}


def _others(old: Slots, new: Slots, paired: Sequence[Pair]) -> tuple[Slots, Slots]:
    """The slots of both sides that no pair holds."""
    taken_a, taken_b = {pair.a for pair in paired}, {pair.b for pair in paired}
    return (
        {place: slot for place, slot in old.items() if place not in taken_a},
        {place: slot for place, slot in new.items() if place not in taken_b},
    )


def _edited(old: Slots, new: Slots) -> list[Pair]:
    """The new cards that were made by editing one of the old."""
    origins: dict[str, list[int]] = {}
    for place, slot in reversed(list(old.items())):
        origins.setdefault(slot.card_id, []).append(place)
    pairs = []
    for place, slot in new.items():
        origin = slot.card.metadata.get("edited_from") if slot.card else None
        if isinstance(origin, str) and origins.get(origin):
            pairs.append(Pair(origins[origin].pop(), place))
    return pairs


def _replaced(old: Slots, new: Slots, found: IdDiff) -> list[Pair]:
    """The new cards that stand, between the same kept ones, for an old one of their type and role."""
    waiting: dict[tuple[int, str, str | None], list[int]] = {}
    for place, slot in reversed(list(old.items())):
        if slot.card is not None:
            gap = bisect_left(found.kept, Pair(place, 0))
            waiting.setdefault((gap, slot.card.type, slot.card.role), []).append(place)
    kept_b = [pair.b for pair in found.kept]
    pairs = []
    for place, slot in new.items():
        if slot.card is not None:
            candidates = waiting.get((bisect_left(kept_b, place), slot.card.type, slot.card.role))
            if candidates:
                pairs.append(Pair(candidates.pop(), place))
    return pairs


def _where(change: Change, found: IdDiff) -> tuple[int, int, int]:
    """Sorts changes by their place in the second box; what was removed stands where the gap begins."""
    if change.b is not None:
        return change.b.position, 1, 0
    assert change.a is not None
    before = bisect_left(found.kept, Pair(change.a.position, 0))
    return found.kept[before - 1].b + 1 if before else 0, 0, change.a.position
