"""Lists of boxes by what each is for, and parts of boxes of any length. Never writes.

The kind of a box is what its first card, its packing or its title tells, in SQL; where these tell nothing,
how the turns that name it use it: all that wait or run, and the latest ones.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from cardbox_cli.model.boxes import BOX_KINDS, Box, BoxKind, CardState, ListedBox
from cardbox_cli.model.card_types import CARD_TYPES, PROFILE
from cardbox_cli.model.cards import IMPORTER, Card, decode_card
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.store.boxes import BoxInfoStore, BoxStore
from cardbox_cli.store.connection.project_store import (
    PAGE,
    Dated,
    Further,
    ProjectStore,
    paged,
    place,
)
from cardbox_cli.store.in_use import BoxUseStore

# What a box is for is told by its first card, so that counting is dearer than elsewhere.
_COUNTED_BY_KIND = 1000
# How many boxes are looked into for the cards of a page.
_LOOKED_INTO = 100
# The kind of a box that does not tell it.
_UNTOLD = ""
_TURNS_TELL = frozenset({"context", "output"})


class BoxKindFilter(Dated, frozen=True, kw_only=True):
    """When the boxes of a list changed last, and their kinds; None means any, and those without one."""

    kinds: tuple[BoxKind, ...] | None = None
    without: tuple[BoxKind, ...] = ()


class BoxInShort(msgspec.Struct, frozen=True, kw_only=True):
    """A box without its ids: `length` is how many it has."""

    box_id: str
    title: str | None = None
    length: int
    parent_ids: list[Any]
    updated_at: datetime | None


class WindowSlot(msgspec.Struct, frozen=True):
    """A place of a box, from 0, and its card as far as it is read: of a large one only the `beginning` of its
    content. `size` is that of its JSON in bytes, 0 where there is no card."""

    position: int
    card_id: str
    state: CardState
    size: int
    card: Card | None
    type: str
    role: str | None
    beginning: str


# Larger cards are read whole only when one is asked for by its id. In bytes of JSON.
_WHOLE = 32_000
_BEGINNING = 4_000


class BoxViews(ProjectStore):
    """The boxes of one project, as lists show them."""

    def in_short(self, box_id: str) -> BoxInShort:
        """A box, by its whole id, without its ids, of which it may have very many. Raises NotFound."""
        canonical = as_box_id(box_id)
        found = None if canonical is None else self._one(BoxInShort, "box_in_short", box_id=canonical)
        box = self._found(found, "box", box_id, "`cbx box list` shows the newest boxes")
        titles = BoxInfoStore(self.database, self.project_id).titles([box.box_id])
        return msgspec.structs.replace(box, title=titles.get(box.box_id))

    def window(self, box_id: str, first: int, count: int) -> list[WindowSlot]:
        """The places of a box, by its canonical id, from `first` on, up to `count` of them."""
        bounds = {"first": first, "last": first + count - 1, "whole": _WHOLE, "beginning": _BEGINNING}
        rows = self._rows("window_of_box", box_id=box_id, **bounds)
        return [_window_slot(*row) for row in rows]

    def newest(self, where: BoxKindFilter, *, limit: int | None = None) -> Iterator[ListedBox]:
        """The boxes that `where` allows, the last changed first, read in pages as they are asked for."""
        size = PAGE if limit is None else min(limit, PAGE)
        every = paged(partial(self._page, self._dated(where)), page=size, limit=None)
        return islice((box for box in every if where.kinds is None or box.kind in where.kinds), limit)

    def further(self, where: BoxKindFilter, last: Box) -> Further:
        """How many boxes `newest` would give after `last`. Looks at 1,000."""
        counts = self._counts(self._dated(where), last)
        if where.kinds is not None and _UNTOLD in _told(where):
            return Further(sum(counts.get(kind, 0) for kind in where.kinds), False)
        matching = sum(counts.get(kind, 0) for kind in _told(where))
        return Further.counted(matching, sum(counts.values()), limit=_COUNTED_BY_KIND)

    def hidden(self, where: BoxKindFilter) -> dict[str, int]:
        """How many of the newest 1,000 boxes `where` goes without, by kind."""
        counts = self._counts(self._dated(where), None)
        return {kind: counts[kind] for kind in where.without if kind in counts}

    def holding(self, card_ids: Sequence[str]) -> dict[str, str]:
        """Of each of these cards the box that changed first, among the 100 boxes that changed last.

        To look into a box of 500 cards takes as long as to find a card.
        """
        return dict(self._rows("boxes_holding_cards", card_ids=list(card_ids), latest=_LOOKED_INTO))

    def _page(self, where: BoxKindFilter, after: ListedBox | None, size: int) -> list[ListedBox]:
        kinds: dict[str, Any] = dict(
            self._rows(self._query("list_boxes_by_kind"), **_place(where, after, size))
        )
        boxes = BoxStore(self.database, self.project_id).get_many(list(kinds)).boxes
        untold = [box_id for box_id, kind in kinds.items() if kind == _UNTOLD]
        turns = BoxUseStore(self.database, self.project_id).turns_of(untold)
        for box_id in untold:
            kinds[box_id] = turns[box_id][0].use if box_id in turns else None
        return [ListedBox(**msgspec.structs.asdict(box), kind=kinds[box.box_id]) for box in boxes]

    def _counts(self, where: BoxKindFilter, last: Box | None) -> dict[str, int]:
        behind = _place(where, last, _COUNTED_BY_KIND + 1)
        return dict(self._rows(self._query("count_boxes_by_kind"), **behind))

    def _query(self, name: str) -> str:
        return name if self.database.keeps_box_info else f"{name}_without_info"


def _window_slot(
    position: int,
    card_id: str,
    state: CardState,
    size: int,
    card: str | None,
    card_type: str,
    role: str | None,
    beginning: str | None,
) -> WindowSlot:
    read = None if card is None else decode_card(card)
    return WindowSlot(position, card_id, state, size, read, card_type, role, beginning or "")


def _told(where: BoxKindFilter) -> list[str]:
    """The kinds that boxes may tell to be listed: '' where the turns that name one may tell it."""
    if where.kinds is None:
        return [kind for kind in (*BOX_KINDS, _UNTOLD) if kind not in where.without]
    return [*where.kinds, *([_UNTOLD] if _TURNS_TELL.intersection(where.kinds) else [])]


def _place(where: BoxKindFilter, after: Box | None, limit: int) -> dict[str, Any]:
    return {
        **place(where, after, limit, key="box_id", time="updated_at"),
        "kinds": _told(where),
        "snapshots": [name for name, record in CARD_TYPES.items() if record.is_snapshot],
        "profile": PROFILE,
        "importer": IMPORTER,
    }
