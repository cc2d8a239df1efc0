"""Lists of boxes by kind, and windows of boxes of any length. Never writes.

SQL determines the kind of a box by its first card, its provenance or its title. Otherwise its use by turns
determines it: by all unfinished turns that refer to the box, and by the latest turns.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from cardbox_cli.model.boxes import BOX_KINDS, Box, BoxKind, CardState, ListedBox
from cardbox_cli.model.card_types import PROFILE, SNAPSHOT_TYPES
from cardbox_cli.model.cards import IMPORTER, Card, decode_card
from cardbox_cli.model.ids import canonical_box_id
from cardbox_cli.store.boxes import BoxInfoStore, BoxStore
from cardbox_cli.store.connection.project_store import (
    PAGE_SIZE,
    DateFilter,
    FurtherCount,
    ProjectStore,
    page_parameters,
    read_pages,
)
from cardbox_cli.store.in_use import BoxUseStore

# Smaller than other limits, because a count by kind reads the first card of each box.
_MAX_COUNTED_BY_KIND = 1000
# Number of boxes that are searched for the cards of a page.
_MAX_BOXES_SEARCHED = 100
# Kind of a box if its first card, its provenance and its title do not determine one.
_UNDETERMINED = ""
_KINDS_OF_TURNS = frozenset({"context", "output"})


class BoxKindFilter(DateFilter, frozen=True, kw_only=True):
    """Filter of a list of boxes by their last change and by kind. `kinds` None matches any kind."""

    kinds: tuple[BoxKind, ...] | None = None
    without: tuple[BoxKind, ...] = ()


class BoxSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A box without its ids. `length` is the number of ids."""

    box_id: str
    title: str | None = None
    length: int
    parent_ids: list[Any]
    updated_at: datetime | None


class WindowSlot(msgspec.Struct, frozen=True):
    """A position of a box, from 0, and its card. A large card has only the `beginning` of its content.

    `size` is the length of the card's JSON in bytes, or 0 without a card.
    """

    position: int
    card_id: str
    state: CardState
    size: int
    card: Card | None
    type: str
    role: str | None
    beginning: str


# In bytes of JSON. A larger card is only read completely if it is requested by its id.
_MAX_WHOLE_BYTES = 32_000
_BEGINNING_CHARACTERS = 4_000


class BoxViews(ProjectStore):
    """Lists and windows of one project's boxes."""

    def summary(self, box_id: str) -> BoxSummary:
        """Return a box without its ids, which may be many. Needs the full box id. Raises NotFound."""
        canonical = canonical_box_id(box_id)
        stored = None if canonical is None else self._one(BoxSummary, "box_in_short", box_id=canonical)
        box = self._require_item(stored, "box", box_id, "`cbx box list` shows the newest boxes")
        titles = BoxInfoStore(self.database, self.project_id).titles([box.box_id])
        return msgspec.structs.replace(box, title=titles.get(box.box_id))

    def window(self, box_id: str, first: int, count: int) -> list[WindowSlot]:
        """Return up to `count` positions of a box from `first` on. Needs the canonical box id."""
        bounds = {"first": first, "last": first + count - 1}
        limits = {"whole": _MAX_WHOLE_BYTES, "beginning": _BEGINNING_CHARACTERS}
        return [
            WindowSlot(
                position, card_id, state, size, card and decode_card(card), card_type, role, text or ""
            )
            for position, card_id, state, size, card, card_type, role, text in self._rows(
                "window_of_box", box_id=box_id, **bounds, **limits
            )
        ]

    def newest(self, where: BoxKindFilter, *, limit: int | None = None) -> Iterator[ListedBox]:
        """Yield the boxes that match `where`, last changed first, reading page by page."""
        size = PAGE_SIZE if limit is None else min(limit, PAGE_SIZE)
        every = read_pages(partial(self._page, self._resolve_dates(where)), page=size, limit=None)
        return islice((box for box in every if where.kinds is None or box.kind in where.kinds), limit)

    def further(self, where: BoxKindFilter, last: Box) -> FurtherCount:
        """Return how many boxes `newest` would yield after `last`. Examines at most 1,000 boxes."""
        counts = self._counts(self._resolve_dates(where), last)
        if where.kinds is not None and _UNDETERMINED in _stored_kinds(where):
            return FurtherCount(sum(counts.get(kind, 0) for kind in where.kinds), False)
        matching = sum(counts.get(kind, 0) for kind in _stored_kinds(where))
        return FurtherCount.cap(matching, sum(counts.values()), limit=_MAX_COUNTED_BY_KIND)

    def hidden(self, where: BoxKindFilter) -> dict[str, int]:
        """Return how many of the newest 1,000 boxes `where` excludes, by kind."""
        counts = self._counts(self._resolve_dates(where), None)
        return {kind: counts[kind] for kind in where.without if kind in counts}

    def holding(self, card_ids: Sequence[str]) -> dict[str, str]:
        """Return, for each of these cards, the box with it that changed first. Searches the last 100 boxes.

        The limit is 100 because searching a box of 500 cards takes as long as finding a card.
        """
        return dict(self._rows("boxes_holding_cards", card_ids=list(card_ids), latest=_MAX_BOXES_SEARCHED))

    def _page(self, where: BoxKindFilter, after: ListedBox | None, size: int) -> list[ListedBox]:
        rows = self._rows(self._query("list_boxes_by_kind"), **_place(where, after, size))
        kinds: dict[str, Any] = dict(rows)
        boxes = BoxStore(self.database, self.project_id).get_many(list(kinds)).boxes
        undetermined = [box_id for box_id, kind in kinds.items() if kind == _UNDETERMINED]
        turns = BoxUseStore(self.database, self.project_id).turns_of(undetermined)
        for box_id in undetermined:
            kinds[box_id] = turns[box_id][0].use if box_id in turns else None
        return [ListedBox(**msgspec.structs.asdict(box), kind=kinds[box.box_id]) for box in boxes]

    def _counts(self, where: BoxKindFilter, last: Box | None) -> dict[str, int]:
        behind = _place(where, last, _MAX_COUNTED_BY_KIND + 1)
        return dict(self._rows(self._query("count_boxes_by_kind"), **behind))

    def _query(self, name: str) -> str:
        return name if self.database.keeps_box_info else f"{name}_without_info"


def _stored_kinds(where: BoxKindFilter) -> list[str]:
    """Return the stored kinds to list. Includes '' if turns may determine the kind of a listed box."""
    if where.kinds is None:
        return [kind for kind in (*BOX_KINDS, _UNDETERMINED) if kind not in where.without]
    return [*where.kinds, *([_UNDETERMINED] if _KINDS_OF_TURNS.intersection(where.kinds) else [])]


def _place(where: BoxKindFilter, after: Box | None, limit: int) -> dict[str, Any]:
    return {
        **page_parameters(where, after, limit, key="box_id", time="updated_at"),
        "kinds": _stored_kinds(where),
        "snapshots": list(SNAPSHOT_TYPES),
        "profile": PROFILE,
        "importer": IMPORTER,
    }
