"""Boxes in Postgres: one project's view of `public.card_boxes`, and their titles and provenance in
`box_info`.

Boxes contain ids, never cards. A row lock serializes writes to one box. Reads take no lock, except `lock` and
`lock_shared`. A method joins the caller's transaction, or opens its own.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from cardbox_cli.errors import BoxConflict, InvalidInput, NotFound
from cardbox_cli.limits import MAX_BOXES_SEARCHED
from cardbox_cli.model.boxes import (
    Box,
    BoxView,
    CardState,
    InheritableBox,
    Provenance,
    Reference,
    Slot,
    decode_box,
    decode_ids,
    digest,
)
from cardbox_cli.model.card_types import PROFILE, SNAPSHOT_TYPES
from cardbox_cli.model.cards import Card, decode_card
from cardbox_cli.model.execution.turns import Fence, Head
from cardbox_cli.model.ids import canonical_box_id, hash_ids, new_box_id, unique
from cardbox_cli.store.connection.database import Database, jsonb
from cardbox_cli.store.connection.project_store import (
    NO_BOX,
    DateFilter,
    ProjectStore,
    like_escape,
    page_parameters,
    read_pages,
    require_single,
    short_id_pattern,
)
from cardbox_cli.store.execution.head_store import HeadStore
from cardbox_cli.store.in_use import BoxUseStore
from cardbox_cli.store.projects import check_first_write

if TYPE_CHECKING:
    from cardbox_cli.model.diff import BoxDiff


# `cbx.box_info` stores titles and provenance, for which `card_boxes` has no columns. The database of another
# program may lack this table. Then nothing is stored, and reads find nothing.


class BoxInfoStore(ProjectStore):
    """The titles and provenance of one project's boxes. Box ids are canonical."""

    def save(self, box_id: str, title: str | None, provenance: Provenance | None) -> None:
        """Store the title and provenance of a box, replacing earlier ones. Does nothing if both are None."""
        if self.database.keeps_box_info and (title is not None or provenance is not None):
            packed = None if provenance is None else jsonb(provenance)
            self._run("insert_box_info", box_id=box_id, title=title, provenance=packed)

    def save_titles(self, titles: Iterable[tuple[str, str | None]]) -> None:
        """Store the titles of new boxes in one statement. `titles` has pairs of a box id and a title."""
        titled = [(box_id, title) for box_id, title in titles if title is not None]
        if titled and self.database.keeps_box_info:
            box_ids, texts = zip(*titled, strict=True)
            self._run("insert_box_titles", box_ids=list(box_ids), titles=list(texts))

    def titles(self, box_ids: Sequence[str]) -> dict[str, str]:
        """Return the titles of these boxes by box id. Leaves out boxes without a title."""
        if not box_ids or not self.database.keeps_box_info:
            return {}
        return dict(self._rows("box_titles", box_ids=list(box_ids)))

    def provenance(self, box_id: str) -> Provenance | None:
        """Return the record of how the box was packed, or None if cbx wrote no such record."""
        if not self.database.keeps_box_info:
            return None
        try:
            return self._one(Provenance, "provenance_of_box", box_id=box_id)
        except msgspec.ValidationError:
            # Another program wrote it in its own format.
            return None

    def delete(self, box_id: str) -> None:
        if self.database.keeps_box_info:
            self._run("delete_box_info", box_id=box_id)


BOX_LIST_HINT = "`cbx box list` shows the newest boxes"
_BY_CHANGE = {"key": "box_id", "time": "updated_at"}
# Number of cards read per query.
_CARDS_PER_QUERY = 2000


class BoxBatch(msgspec.Struct, frozen=True):
    """Result of reading several boxes: the boxes found, in the requested order, and the missing ids."""

    boxes: list[Box]
    missing_box_ids: list[str]


class BoxStore(ProjectStore):
    """The boxes of one project. Methods that read come first, then methods that write."""

    def __init__(self, database: Database, project_id: str) -> None:
        super().__init__(database, project_id)
        self._info = BoxInfoStore(database, project_id)
        self._use = BoxUseStore(database, project_id)

    def get(self, box_id: str) -> Box:
        """Return the box with this id. Raises NotFound if no box has it or if it is not a UUID."""
        box = next(iter(self.get_many([box_id]).boxes), None)
        return self._require_item(box, "box", box_id, BOX_LIST_HINT)

    def get_many(self, box_ids: Sequence[str]) -> BoxBatch:
        """Return each box with one of these ids once, in the order of `box_ids`, and the missing ids."""
        ids = unique(canonical_box_id(box_id) or box_id for box_id in box_ids)
        rows = self._column("boxes_by_ids", box_ids=[box_id for box_id in ids if canonical_box_id(box_id)])
        boxes = {box.box_id: box for box in self.add_titles([decode_box(row) for row in rows])}
        return BoxBatch(
            boxes=[boxes[box_id] for box_id in ids if box_id in boxes],
            missing_box_ids=[box_id for box_id in ids if box_id not in boxes],
        )

    def id_lists(self, box_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the id lists of the boxes that exist, by canonical box id."""
        return {box_id: decode_ids(ids) for box_id, ids in self.id_texts(box_ids).items()}

    def id_texts(self, box_ids: Sequence[str]) -> dict[str, str]:
        """Return the id lists as JSON text. If one list begins with another, so does its text."""
        canonical = list(filter(None, map(canonical_box_id, box_ids)))
        return dict(self._rows("box_id_lists", box_ids=canonical))

    def inheritable(self, box_ids: Iterable[str]) -> dict[str, InheritableBox]:
        """Return the id list and the internal kind of each of these boxes that exists, by canonical id."""
        name = "boxes_to_inherit" if self.database.keeps_box_info else "boxes_to_inherit_without_info"
        canonical = list(filter(None, map(canonical_box_id, box_ids)))
        types = {"profile": PROFILE, "internal": [PROFILE, *SNAPSHOT_TYPES]}
        rows = self._rows(name, box_ids=canonical, **types)
        return {box_id: InheritableBox(decode_ids(ids), kind) for box_id, ids, kind in rows}

    def lost_cards(self, card_ids: Sequence[str]) -> dict[str, CardState]:
        """Return the state of each of these ids that is not present, in the order of `card_ids`."""
        states: dict[str, CardState] = (
            dict(self._rows("card_states", card_ids=unique(card_ids))) if card_ids else {}
        )
        known = {card_id: states.get(card_id, "dangling") for card_id in card_ids}
        return {card_id: state for card_id, state in known.items() if state != "present"}

    def filter_existing(self, box_ids: Iterable[str]) -> set[str]:
        canonical = list(filter(None, map(canonical_box_id, box_ids)))
        return set(self._column("existing_boxes", box_ids=canonical))

    def require(self, box_id: str) -> None:
        if not self.filter_existing([box_id]):
            raise self._not_found("box", box_id, BOX_LIST_HINT)

    def length(self, box_id: str) -> int:
        """Return the number of positions of a box. Raises NotFound."""
        length = self._value("box_length", box_id=uuid_or_nil(box_id))
        return int(self._require_item(length, "box", box_id, BOX_LIST_HINT))

    def lock_shared(self, box_id: str) -> bool:
        """Lock the box against changes until the transaction ends. Returns False for an unknown box."""
        return bool(self._value("share_box", box_id=uuid_or_nil(box_id)))

    def slots(self, box_id: str) -> list[Slot]:
        """Return every position of the box with its card, in order. Returns [] for an unknown box."""
        rows = self._rows("slots_of_box", box_id=uuid_or_nil(box_id), **_ALL_POSITIONS)
        return [slot_of(row) for row in rows]

    def stream(self, box_id: str, window: range | None = None) -> Iterator[Slot]:
        """Yield the positions of the box, or those in `window`, lazily. Needs a transaction or snapshot."""
        return map(slot_of, self._stream("slots_of_box", box_id=uuid_or_nil(box_id), **_positions(window)))

    def json_lines(
        self, box_id: str, types: Collection[str] | None = None, window: range | None = None
    ) -> Iterator[tuple[str, str | None]]:
        """Yield the id and the JSON of the card at each position, in order. A hidden card has None as JSON.

        With `types`, skips cards of other types. Reads lazily, and needs a transaction or snapshot.
        """
        parameters = {**_positions(window), "types": None if types is None else list(types)}
        return self._stream("json_of_box", box_id=uuid_or_nil(box_id), **parameters)

    def view(self, box_id: str) -> BoxView:
        """Return the box with its cards and digest, as one snapshot. Raises NotFound."""
        with self.database.snapshot():
            box = self.get(box_id)
            slots = self.slots(box_id)
        return BoxView(box=box, slots=slots, digest=digest(slot.card for slot in slots))

    def provenance(self, box_id: str) -> Provenance | None:
        """Return the record of how the box was packed, or None if there is no such record."""
        return self._info.provenance(uuid_or_nil(box_id))

    def diff(self, a: str, b: str) -> "BoxDiff":
        """Compare box `a` with box `b` in one snapshot. Raises NotFound."""
        from cardbox_cli.model import diff

        with self.database.snapshot():
            one, other = self.get(a), self.get(b)
            edits = diff.diff_ids(one.card_ids, other.card_ids)
            differing = [one.card_ids[place] for place in edits.removed + [pair.a for pair in edits.moved]]
            differing += [other.card_ids[place] for place in edits.added]
            cards = self.cards_with_states(differing)
        return diff.compare_boxes(one, other, edits, cards)

    def cards_with_states(self, card_ids: Iterable[str]) -> dict[str, tuple[Card, CardState]]:
        """Return the cards with these ids and their states, by card id. Includes hidden cards."""
        ids = unique(card_ids)
        return {
            card_id: (decode_card(row), state)
            for begin in range(0, len(ids), _CARDS_PER_QUERY)
            for card_id, state, row in self._rows(
                "known_cards", card_ids=ids[begin : begin + _CARDS_PER_QUERY]
            )
        }

    def refs(
        self, card_id: str, *, limit: int | None = None, latest: int | None = MAX_BOXES_SEARCHED.value
    ) -> Iterator[Reference]:
        """Yield the boxes with this card, last changed first. Searches the `latest` boxes, or all if None."""
        return read_pages(partial(self._page_of_refs, card_id, latest), limit=limit)

    def count_refs(self, card_id: str, *, latest: int | None = MAX_BOXES_SEARCHED.value) -> int:
        """Count the boxes with this card among the `latest` last changed boxes, or among all if None."""
        return int(self._value("count_boxes_of_card", card_id=card_id, latest=latest))

    def has_more_than(self, number: int) -> bool:
        """Return whether the project has more than `number` boxes. Reads at most one box more than that."""
        return bool(self._value("has_more_boxes", latest=number))

    def newest(self, where: DateFilter | None = None, *, limit: int | None = None) -> Iterator[Box]:
        """Yield the boxes whose last change is in the time range, newest first, reading page by page."""
        return read_pages(partial(self._page, self._resolve_dates(where or DateFilter())), limit=limit)

    def resolve(self, wanted: str) -> str:
        """Return the full id for an id or for a unique part of one. Raises NotFound, AmbiguousId.

        A part is the beginning or the end of an id, or the beginning of a short id.
        """
        whole = canonical_box_id(wanted)
        if whole is not None:
            return whole
        part = wanted.lower().replace("-", "")
        is_hex = _HEX_PART.fullmatch(part) is not None
        candidates = self._column(
            "find_box_ids",
            first=part.ljust(32, "0") if is_hex else None,
            last=part.ljust(32, "f") if is_hex else None,
            reversed_pattern=f"{like_escape(part[::-1])}%",
            shown=short_id_pattern(self.database, part, "public.idx_boxes_shown"),
        )
        return require_single("box", wanted, candidates, self.project_id)

    def _page(self, where: DateFilter, after: Box | None, size: int) -> list[Box]:
        rows = self._column("list_boxes", **page_parameters(where, after, size, **_BY_CHANGE))
        return self.add_titles([decode_box(row) for row in rows])

    def _page_of_refs(
        self, card_id: str, latest: int | None, after: Reference | None, size: int
    ) -> list[Reference]:
        place = page_parameters(DateFilter(), after, size, **_BY_CHANGE)
        references = self._all(Reference, "boxes_of_card", card_id=card_id, latest=latest, **place)
        box_ids = [each.box_id for each in references]
        titles, turns = self._info.titles(box_ids), self._use.turns_of(box_ids)
        return [
            msgspec.structs.replace(each, title=titles.get(each.box_id), turns=turns.get(each.box_id, []))
            for each in references
        ]

    def add_titles(self, boxes: list[Box]) -> list[Box]:
        titles = self._info.titles([box.box_id for box in boxes])
        return [msgspec.structs.replace(box, title=titles.get(box.box_id)) for box in boxes]

    # --- writes

    def create(
        self,
        card_ids: Sequence[str],
        *,
        parent_ids: Sequence[str] | None = None,
        title: str | None = None,
        box_id: str | None = None,
        provenance: Provenance | None = None,
        allow_dangling: bool = False,
    ) -> Box:
        """Create a box of these ids. Raises NotFound for ids without a card, unless `allow_dangling`.

        Pass `box_id` only if the id is derived from other data. Raises BoxConflict if a box has this id.
        """
        with self.database.transaction(savepoint=False):
            if not allow_dangling:
                self._refuse_absent(card_ids)
            box = self._insert(box_id or new_box_id(), card_ids, parent_ids or ())
            if box is None:
                raise BoxConflict(f"the box id {box_id!r} is taken", hint="omit the id to get a new id")
            self._info.save(box.box_id, title, provenance)
        return msgspec.structs.replace(box, title=title if self.database.keeps_box_info else None)

    def append(
        self,
        box_id: str,
        card_ids: Sequence[str],
        *,
        allow_dangling: bool = False,
        fence: Fence | None = None,
        held: Head | None = None,
        of_chat: bool = False,
    ) -> int:
        """Append ids and return the box's new length. Concurrent appends are serialized, and all take effect.

        Raises NotFound for an unknown box, and for an id without a card unless `allow_dangling`. Raises
        BoxConflict for a box that a turn reads or writes, or that belongs to a chat. A turn passes its
        `fence`. An outdated fence raises StaleEpoch. A caller that has locked the head of the turn passes
        the head as `held`. A caller that has locked the head of a chat passes `of_chat`.
        """
        is_free = fence is None and held is None and not of_chat
        # Only if `is_free`, the box may turn out to be in use after the write. Then the write is rolled back.
        with self.database.transaction(savepoint=is_free):
            if fence is not None:
                held = HeadStore(self.database, self.project_id).hold(fence)
            if held is not None:
                _check_output(held, box_id)
            ids = {"box_id": uuid_or_nil(box_id), "card_ids": jsonb(list(card_ids))}
            length = self._value("append_to_box", **ids, allow_dangling=allow_dangling)
            if length is None:
                if not allow_dangling:
                    self._refuse_absent(card_ids)
                raise self._not_found("box", box_id, BOX_LIST_HINT)
            if is_free:
                # The write has locked the box. Before that, a turn could still have been dispatched.
                self._use.refuse_change([uuid_or_nil(box_id)])
        return int(length)

    def ensure(self, box_id: str) -> Box:
        """Return the box, created empty if missing. Raises BoxConflict if another project has this id."""
        canonical = canonical_box_id(box_id)
        if canonical is None:
            raise InvalidInput(f"the box id {box_id!r} is not a UUID")
        with self.database.transaction():
            box = self._insert(canonical, (), ())
            if box is not None:
                return box
            if stored := self.get_many([canonical]).boxes:
                return stored[0]
            raise BoxConflict(f"the box id {box_id!r} is taken")

    def ensure_card(self, box_id: str, card_id: str) -> None:
        """Add a card to a box unless the box contains it. Creates a missing box. Raises as `ensure` does.

        The caller has locked the turn that writes to the box.
        """
        canonical = canonical_box_id(box_id)
        if not self._value("put_into_box", box_id=canonical, card_ids=jsonb([card_id])):
            self.ensure(box_id)
            self._value("put_into_box", box_id=canonical, card_ids=jsonb([card_id]))

    def replace(
        self, box_id: str, card_ids: Sequence[str], *, if_ids: str | None = None, allow_dangling: bool = False
    ) -> Box:
        """Replace the id list. `if_ids` is `hash_ids` of the list that the caller has read, or None.

        Raises BoxConflict, and writes nothing, if the list no longer has this hash, if the box stores a
        profile, or if a turn reads or writes it. Raises NotFound as `append` does.
        """
        with self.database.transaction():
            box = self.lock(box_id)
            self.check_replaceable(box.box_id)
            if if_ids is not None and hash_ids(box.card_ids) != if_ids:
                what = f"box {box.box_id} has changed: its ids hash to {hash_ids(box.card_ids)}, not {if_ids}"
                raise BoxConflict(what, hint=f"check `cbx box show {box.box_id}`, then try again")
            if not allow_dangling:
                self._refuse_absent(card_ids)
            row = self._value("replace_box", box_id=box.box_id, card_ids=jsonb(list(card_ids)))
            provenance = self.provenance(box.box_id)
            if provenance is not None:
                self._info.save(box.box_id, box.title, provenance.reorder(box.card_ids, card_ids))
        return msgspec.structs.replace(decode_box(row), title=box.title)

    def fork(self, box_id: str, *, title: str | None = None) -> Box:
        """Create a box with the same ids and provenance as this box, which becomes its parent."""
        with self.database.transaction():
            box = self.get(box_id)
            return self.derive(msgspec.structs.replace(box, title=title or box.title), box.card_ids)

    def derive(self, box: Box, card_ids: Sequence[str], *, may_be_gone: Collection[str] = ()) -> Box:
        """Create a box of these ids, with the title and provenance of `box`, which becomes its parent.

        Raises NotFound for an id without a card, unless it is in `box` or in `may_be_gone`.
        """
        allowed = {*box.card_ids, *may_be_gone}
        with self.database.transaction():
            self._refuse_absent([card_id for card_id in card_ids if card_id not in allowed])
            provenance = self.provenance(box.box_id)
            return self.create(
                card_ids,
                parent_ids=[box.box_id],
                title=box.title,
                provenance=None if provenance is None else provenance.reorder(box.card_ids, card_ids),
                allow_dangling=True,
            )

    def rewrite(self, box: Box, card_ids: Sequence[str], *, if_ids: str) -> Box:
        """Replace the id list as `replace` does. Ids without a card are only allowed if they are in `box`."""
        allowed = set(box.card_ids)
        with self.database.transaction():
            self._refuse_absent([card_id for card_id in card_ids if card_id not in allowed])
            return self.replace(box.box_id, card_ids, if_ids=if_ids, allow_dangling=True)

    def check_replaceable(self, box_id: str) -> None:
        """Raise BoxConflict for a box that `replace` refuses: the box of a profile, or one in use."""
        self._refuse_profile_box(box_id)
        self._use.refuse_change([box_id])

    def delete(self, box_id: str) -> None:
        """Delete the box, not its cards. Raises BoxConflict while a profile, turn or agent refers to it."""
        with self.database.transaction():
            box = self.lock(box_id)
            self._refuse_profile_box(box.box_id)
            self._use.refuse_delete(box.box_id)
            self._value("delete_box", box_id=box.box_id)
            self._info.delete(box.box_id)

    def _insert(self, box_id: str, card_ids: Sequence[str], parent_ids: Sequence[str]) -> Box | None:
        check_first_write(self.database, self.project_id)
        parents = jsonb(list(parent_ids)) if parent_ids else None
        written = self._value("insert_box", box_id=box_id, card_ids=jsonb(list(card_ids)), parent_ids=parents)
        if written is None:
            return None
        return Box(
            box_id=box_id,
            project_id=self.project_id,
            title=None,
            card_ids=list(card_ids),
            parent_ids=list(parent_ids),
            updated_at=written.astimezone(UTC),
        )

    def lock(self, box_id: str) -> Box:
        """Return the box, locked until the end of the transaction. Raises NotFound."""
        row = self._value("lock_box", box_id=uuid_or_nil(box_id))
        return self.add_titles([decode_box(self._require_item(row, "box", box_id, BOX_LIST_HINT))])[0]

    def _refuse_profile_box(self, box_id: str) -> None:
        has_profiles = "resource.profiles" in self.database.tables
        name = self._value("boxes_of_profile", box_id=box_id) if has_profiles else None
        if name is not None:
            hint = "import a changed profile; its name then refers to a new box"
            raise BoxConflict(f"box {box_id} holds the profile {name!r}", hint=hint)

    def _refuse_absent(self, card_ids: Sequence[str]) -> None:
        """Raise NotFound if the project has no card, not even a deleted one, with one of these ids."""
        absent = self._column("absent_card_ids", card_ids=unique(card_ids)) if card_ids else []
        if absent:
            others = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            raise NotFound(
                f"no card {absent[0]!r}{others} in project {self.project_id!r}",
                hint="add the cards first, or pass --allow-dangling to reference them before they exist",
                details={"missing_card_ids": absent},
            )


_HEX_PART = re.compile(r"[0-9a-f]{1,32}")
_ALL_POSITIONS: dict[str, int | None] = {"first": None, "last": None}


def uuid_or_nil(box_id: str) -> str:
    """Return `box_id` as a query parameter. A string that is not a UUID becomes an id that no box has."""
    return canonical_box_id(box_id) or NO_BOX


def _positions(window: range | None) -> dict[str, int | None]:
    if window is None:
        return _ALL_POSITIONS
    # An empty range of positions.
    return {"first": window[0], "last": window[-1]} if window else {"first": 1, "last": 0}


def slot_of(row: Sequence[Any]) -> Slot:
    position, card_id, state, card = row
    return Slot(position, card_id, None if card is None else decode_card(card), state)


def _check_output(head: Head, box_id: str) -> None:
    if head.output_box_id != uuid_or_nil(box_id):
        hint = f"its output box is {head.output_box_id}"
        raise BoxConflict(f"box {box_id} is not the output box of turn {head.fence.agent_turn_id}", hint=hint)


def cards_of_type(boxes: BoxStore, box_id: str | None, card_type: str) -> list[Card]:
    """Return the visible cards of one type in a box, in order. Returns [] if the box is unknown or None."""
    canonical = canonical_box_id(box_id or "")
    lines = [] if canonical is None else boxes.json_lines(canonical, [card_type])
    return [decode_card(line) for _, line in lines if line is not None]
