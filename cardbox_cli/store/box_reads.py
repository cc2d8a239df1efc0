"""Boxes as they are read: one by one, many, place by place, in lists. Takes no lock but that of `share`."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from cardbox_cli.limits import BOXES_LOOKED_INTO
from cardbox_cli.model.boxes import (
    Box,
    BoxView,
    CardState,
    Provenance,
    Reference,
    Slot,
    decode_box,
    decode_ids,
    digest,
)
from cardbox_cli.model.cards import Card, decode_card
from cardbox_cli.model.ids import as_box_id, unique
from cardbox_cli.store.box_info import BoxInfoStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import Dated, Further, ProjectStore, paged, place
from cardbox_cli.store.connection.short_ids import like_escape, shown_beginning, the_one
from cardbox_cli.store.in_use.boxes import BoxUseStore

if TYPE_CHECKING:
    from cardbox_cli.model.diff.boxes import BoxDiff

NO_BOX = "`cbx box list` shows the newest boxes"
_BY_CHANGE = {"key": "box_id", "time": "updated_at"}
# So many cards that boxes stand for are read at a time.
_KNOWN_AT_ONCE = 2000


class BoxFilter(Dated, frozen=True, kw_only=True):
    """When the boxes of a list changed last."""


class FoundBoxes(msgspec.Struct, frozen=True):
    """The answer of a batch read: what was found in the order asked for, and what was not."""

    boxes: list[Box]
    missing_box_ids: list[str]


class BoxReads(ProjectStore):
    """The boxes of one project, to be looked at."""

    def __init__(self, database: Database, project_id: str) -> None:
        super().__init__(database, project_id)
        self._info = BoxInfoStore(database, project_id)
        self._use = BoxUseStore(database, project_id)

    def get(self, box_id: str) -> Box:
        """The box of this id. Raises NotFound, also for a text that is no UUID."""
        return self._found(next(iter(self.get_many([box_id]).boxes), None), "box", box_id, NO_BOX)

    def get_many(self, box_ids: Sequence[str]) -> FoundBoxes:
        """The boxes of these ids in the order of `box_ids`, each once. A missing one is no error."""
        wanted = unique(as_box_id(box_id) or box_id for box_id in box_ids)
        rows = self._column("boxes_by_ids", box_ids=[box_id for box_id in wanted if as_box_id(box_id)])
        boxes = {box.box_id: box for box in self.with_titles([decode_box(row) for row in rows])}
        return FoundBoxes(
            boxes=[boxes[box_id] for box_id in wanted if box_id in boxes],
            missing_box_ids=[box_id for box_id in wanted if box_id not in boxes],
        )

    def id_lists(self, box_ids: Sequence[str]) -> dict[str, list[str]]:
        """The id list of each of these boxes that exists, keyed by canonical box id."""
        return {box_id: decode_ids(ids) for box_id, ids in self.id_texts(box_ids).items()}

    def id_texts(self, box_ids: Sequence[str]) -> dict[str, str]:
        """`id_lists` as the JSON that Postgres prints: a list that goes on from another begins as that."""
        return dict(self._rows("box_id_lists", box_ids=[each for each in map(as_box_id, box_ids) if each]))

    def existing(self, box_ids: Iterable[str]) -> set[str]:
        """Those of these ids that are boxes of the project."""
        return set(self._column("existing_boxes", box_ids=[each for each in map(as_box_id, box_ids) if each]))

    def require(self, box_id: str) -> None:
        """Raise NotFound unless the box exists."""
        if not self.existing([box_id]):
            raise self._absent("box", box_id, NO_BOX)

    def length(self, box_id: str) -> int:
        """How many places a box has. Raises NotFound."""
        length = self._value("box_length", box_id=as_uuid(box_id))
        return int(self._found(length, "box", box_id, NO_BOX))

    def share(self, box_id: str) -> bool:
        """Keep the box from changes until the end of the transaction; False for an unknown box."""
        return bool(self._value("share_box", box_id=as_uuid(box_id)))

    def slots(self, box_id: str) -> list[Slot]:
        """Every place of the box in order with its card, in one round trip; [] for an unknown box."""
        return [slot_of(row) for row in self._rows("slots_of_box", box_id=as_uuid(box_id), **_WHOLE)]

    def stream(self, box_id: str, window: range | None = None) -> Iterator[Slot]:
        """`slots`, read as they are asked for, within the caller's transaction or snapshot.

        Of a `window` of positions nothing else is read.
        """
        return map(slot_of, self._stream("slots_of_box", box_id=as_uuid(box_id), **_positions(window)))

    def json_lines(
        self, box_id: str, types: Collection[str] | None = None, window: range | None = None
    ) -> Iterator[tuple[str, str | None]]:
        """Every place of the box in order, as the id and the card's JSON as the database prints it.

        None in its place where a reader sees no card. Cards of other types than `types` are left out. Read as
        they are asked for, within the caller's transaction or snapshot.
        """
        wanted = None if types is None else list(types)
        positions = _positions(window)
        return self._stream("json_of_box", box_id=as_uuid(box_id), types=wanted, **positions)

    def view(self, box_id: str) -> BoxView:
        """The box with its cards and digest, as one snapshot. Raises NotFound."""
        with self.database.snapshot():
            box = self.get(box_id)
            slots = self.slots(box_id)
        return BoxView(box=box, slots=slots, digest=digest(slot.card for slot in slots))

    def provenance(self, box_id: str) -> Provenance | None:
        """How the box was packed; None if it was not, or if this database does not keep it."""
        return self._info.provenance(as_uuid(box_id))

    def diff(self, a: str, b: str) -> "BoxDiff":
        """How box `b` differs from box `a`, in one snapshot. Raises NotFound."""
        from cardbox_cli.model.diff import boxes

        with self.database.snapshot():
            one, other = self.get(a), self.get(b)
            found = boxes.diff(one.card_ids, other.card_ids)
            differing = [one.card_ids[place] for place in found.removed + [pair.a for pair in found.moved]]
            differing += [other.card_ids[place] for place in found.added]
            known = self.known(differing)
        return boxes.compare(one, other, found, known)

    def known(self, card_ids: Iterable[str]) -> dict[str, tuple[Card, CardState]]:
        """What those of these ids stand for that are cards: hidden ones too, each with its state."""
        wanted = unique(card_ids)
        return {
            card_id: (decode_card(row), state)
            for begin in range(0, len(wanted), _KNOWN_AT_ONCE)
            for card_id, state, row in self._rows(
                "known_cards", card_ids=wanted[begin : begin + _KNOWN_AT_ONCE]
            )
        }

    def refs(
        self, card_id: str, *, limit: int | None = None, latest: int | None = BOXES_LOOKED_INTO.value
    ) -> Iterator[Reference]:
        """The boxes that hold this id, a card's or a dangling one, the last changed first, read in pages.

        Looks into the `latest` boxes that changed last; None for all.
        """
        return paged(partial(self._page_of_refs, card_id, latest), limit=limit)

    def count_refs(self, card_id: str, *, latest: int | None = BOXES_LOOKED_INTO.value) -> int:
        """How many boxes hold this id, among the `latest` that changed last; None for all."""
        return int(self._value("count_boxes_of_card", card_id=card_id, latest=latest))

    def are_more_than(self, number: int) -> bool:
        """Whether the project has more boxes than this. Takes as long as to count so many."""
        return bool(self._value("has_more_boxes", latest=number))

    def newest(self, where: BoxFilter | None = None, *, limit: int | None = None) -> Iterator[Box]:
        """The boxes that `where` allows, the last changed first, read in pages as they are asked for."""
        return paged(partial(self._page, self._dated(where or BoxFilter())), limit=limit)

    def further(self, where: BoxFilter, last: Box) -> Further:
        """How many boxes `newest` would give after `last`. Counts up to 10,000."""
        return self._further("count_further_boxes", **place(self._dated(where), last, 0, **_BY_CHANGE))

    def resolve(self, wanted: str) -> str:
        """The full id that `wanted` stands for: an id, or a unique piece of one.

        That is its beginning, its end, or the beginning of what is shown. Raises NotFound, AmbiguousId.
        """
        whole = as_box_id(wanted)
        if whole is not None:
            return whole
        piece = wanted.lower().replace("-", "")
        first, last = _ids_beginning_with(piece)
        reversed_pattern = f"{like_escape(piece[::-1])}%"
        found = self._column(
            "find_box_ids",
            first=first,
            last=last,
            reversed_pattern=reversed_pattern,
            shown=shown_beginning(self.database, piece, "public.idx_boxes_shown"),
        )
        return the_one("box", wanted, found, self.project_id)

    def _page(self, where: BoxFilter, after: Box | None, size: int) -> list[Box]:
        rows = self._column("list_boxes", **place(where, after, size, **_BY_CHANGE))
        return self.with_titles([decode_box(row) for row in rows])

    def _page_of_refs(
        self, card_id: str, latest: int | None, after: Reference | None, size: int
    ) -> list[Reference]:
        asked = place(BoxFilter(), after, size, **_BY_CHANGE)
        found = self._all(Reference, "boxes_of_card", card_id=card_id, latest=latest, **asked)
        box_ids = [each.box_id for each in found]
        titles, turns = self._info.titles(box_ids), self._use.turns_of(box_ids)
        return [
            msgspec.structs.replace(each, title=titles.get(each.box_id), turns=turns.get(each.box_id, []))
            for each in found
        ]

    def with_titles(self, boxes: list[Box]) -> list[Box]:
        titles = self._info.titles([box.box_id for box in boxes])
        return [msgspec.structs.replace(box, title=titles.get(box.box_id)) for box in boxes]


_HEX_PIECE = re.compile(r"[0-9a-f]{1,32}")
_WHOLE: dict[str, int | None] = {"first": None, "last": None}
_NIL = "00000000-0000-0000-0000-000000000000"


def as_uuid(box_id: str) -> str:
    """`box_id` for a query: a text that is no UUID names a box that cannot exist."""
    return as_box_id(box_id) or _NIL


def _ids_beginning_with(piece: str) -> tuple[str, str] | tuple[None, None]:
    """The first and the last UUID that begin with `piece`; nothing where none can."""
    if not _HEX_PIECE.fullmatch(piece):
        return None, None
    return piece.ljust(32, "0"), piece.ljust(32, "f")


def _positions(window: range | None) -> dict[str, int | None]:
    """The first and the last position of a window, as queries take them."""
    if window is None:
        return _WHOLE
    # No list has a place there.
    return {"first": window[0], "last": window[-1]} if window else {"first": 1, "last": 0}


def slot_of(row: Sequence[Any]) -> Slot:
    """The place of a box that a row is: position, id, what became of the card, the card."""
    position, card_id, state, card = row
    return Slot(position, card_id, None if card is None else decode_card(card), state)
