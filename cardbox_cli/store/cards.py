"""Cards in Postgres: one project's view of `public.cards`.

Writes are replays or conflicts, never silent changes; reads show what is neither deleted nor expired.
Methods take part in the caller's transaction; alone, each is its own.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from cardbox_cli.errors import CardConflict, CbxError
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, CardDraft, check_draft, decode_card
from cardbox_cli.model.ids import as_box_id, unique
from cardbox_cli.store.connection.database import Database, jsonb
from cardbox_cli.store.connection.project_store import (
    COUNTED,
    Dated,
    Further,
    ProjectStore,
    like_escape,
    paged,
    place,
    shown_beginning,
    the_one,
)
from cardbox_cli.store.connection.queries import query
from cardbox_cli.store.in_use import CardUseStore, Force
from cardbox_cli.store.projects import check_first_write
from cardbox_cli.text import command_line

# How cards are found by what they say, and which index finds few of many.


# Scripts that are written without spaces, where a word search finds nothing: kana, Han, Hangul, fullwidth.
_UNSPACED = (
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)

# Those of them whose pairs of characters are indexed: all but punctuation and what has upper and lower case.
_PAIRED = _UNSPACED.replace("\uff00-\uffef", "\uff66-\uffdc")

WORD_INDEX, BIGRAM_INDEX = "public.idx_cards_text", "public.idx_cards_bigrams"


class Finder(NamedTuple):
    """The name of an index, and the query of a page of what it finds."""

    name: str
    listing: str


# By the field of a filter that it serves, the rarer ones first. A database that others made may have none.
FINDERS = {
    "step_id": Finder("public.idx_cards_step", "list_few_cards"),
    "trace_id": Finder("public.idx_cards_trace", "list_few_cards"),
}


def index_text(database: Database, announce: Callable[[str], None] = lambda text: None) -> list[str]:
    """Build the indexes behind searches, without blocking writers; their names. Replaces broken attempts.

    The index for texts without spaces needs a function that cbx makes together with its table of versions.
    """
    from cardbox_cli.store.migrations.upgrade import build_index

    built = [WORD_INDEX]
    build_index(database, WORD_INDEX, "public.cards", query("index_text"), announce)
    if database.value("knows_bigrams"):
        build_index(database, BIGRAM_INDEX, "public.cards", query("index_bigrams"), announce)
        built.append(BIGRAM_INDEX)
    else:
        announce(
            "Chinese, Japanese and Korean stay without an index: run `cbx db upgrade` first, and this again"
        )
    return [name.removeprefix("public.") for name in built]


def text_search(text: str | None) -> dict[str, Any]:
    """Words where words are spaced; else each piece of `text`, as a string and its JSON hold it."""
    nothing = {"words": None, "patterns": None, "json_patterns": None}
    if text is None:
        return nothing
    if not re.search(_UNSPACED, text):
        return {**nothing, "words": text}
    pieces = text.split()
    in_json = [exact_json.encode(piece).decode()[1:-1] for piece in pieces]
    return {**nothing, "patterns": _substrings(pieces), "json_patterns": _substrings(in_json)}


def finder(text: str) -> Finder | None:
    """What finds the cards that say this; None where no index does."""
    if not re.search(_UNSPACED, text):
        return Finder(WORD_INDEX, "list_few_cards")
    return Finder(BIGRAM_INDEX, "list_few_cards_by_bigrams") if re.search(_PAIRED, text) else None


def _substrings(pieces: list[str]) -> list[str]:
    return [f"%{like_escape(piece)}%" for piece in pieces]


Outcome = Literal["inserted", "unchanged", "repaired"]

_PAGE = 1000
# So many new cards may be most of what there is.
_MANY = 1000
# How far a count looks in a search: to search a card costs a hundred times what a look does.
_COUNTED_IN_SEARCH = 1000
# To sort so many costs less than to look, newest first, for matches that are rarer.
_FEW = 10_000
_NO_CARD = "`cbx card list` shows the newest cards"


class Written(msgspec.Struct, frozen=True):
    """A written card and what writing it did."""

    card: Card
    outcome: Outcome


class Counts(msgspec.Struct, frozen=True):
    """How many cards a bulk write inserted, and how many stood there already, equal."""

    inserted: int
    unchanged: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.inserted + self.unchanged

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.inserted + other.inserted, self.unchanged + other.unchanged)


class CardFilter(Dated, frozen=True, kw_only=True):
    """Which cards a list holds; None means any.

    `since` and `until` (exclusive) are aware times, or how long ago on the database's clock.
    """

    types: Sequence[str] | None = None
    role: str | None = None
    author_id: str | None = None
    agent_turn_id: str | None = None
    step_id: str | None = None
    trace_id: str | None = None
    tool_call_id: str | None = None
    text: str | None = None
    card_ids: Sequence[str] | None = None
    include_deleted: bool = False


class Found(msgspec.Struct, frozen=True):
    """The answer of a batch read: what was found in the order asked for, and what was not."""

    cards: list[Card]
    missing_card_ids: list[str]


class CardStore(ProjectStore):
    """The cards of one project."""

    def __init__(self, database: Database, project_id: str) -> None:
        super().__init__(database, project_id)
        self._use = CardUseStore(database, project_id)

    def add(self, draft: CardDraft, *, repair: bool = False, force: Force | None = None) -> Written:
        """Write one card. The same payload again is `unchanged`; with `repair` another overwrites.

        Raises CardConflict when the id is taken by another payload, a deleted card or another project, and
        without `force` when a card would be overwritten that an unfinished turn sees; InvalidCard when the
        card cannot be stored. Nothing is written then.
        """
        check_draft(draft)
        # What a repair overwrote may have to be taken back; nothing else is written before it is refused.
        with self.database.transaction(savepoint=repair):
            check_first_write(self.database, self.project_id)
            row = self._value("insert_card", **_columns(draft))
            if row is not None:
                return Written(decode_card(row), "inserted")
            stored = self._row("compare_card", **_columns(draft))
            is_same, card, deleted = stored or (False, None, False)
            if is_same and not deleted:
                return Written(decode_card(card), "unchanged")
            if stored is not None and repair:
                return self._repaired(draft, is_same, force)
            raise self._conflict(draft.card_id, draft.tool_call_id, held=stored is not None, deleted=deleted)

    def _repaired(self, draft: CardDraft, is_same: bool, force: Force | None) -> Written:
        """The card, overwritten. To bring back a deleted one as it was changes nothing under a turn."""
        written = Written(decode_card(self._value("repair_card", **_columns(draft))), "repaired")
        if not is_same:
            self._use.check_change([draft.card_id], "repair", force)
        return written

    def add_many(self, drafts: Iterable[CardDraft]) -> Counts:
        """Stream any number of cards in, in constant memory, all or nothing. Raises as `add` does."""
        counts = self.add_labelled((0, draft) for draft in drafts)
        return counts.get(0, Counts(0, 0))

    def refresh_statistics(self, added: int) -> None:
        """Have the server look at cards and boxes anew, where so many `added` are more than it knew of.

        By itself it does so a minute later. Until then it takes a project for one card, and reads all of its
        cards for each place of a box. To be called after the transaction, which others would wait for; where
        our role does not own the tables nothing happens.
        """
        if added >= _MANY and not self.database.sharded and self.database.value("known_size") < added:
            self.database.run("analyze_cards")

    def add_labelled(self, drafts: Iterable[tuple[int, CardDraft]]) -> dict[int, Counts]:
        """`add_many`, counting apart the cards of each label."""
        streamed: dict[int, int] = {}
        with self.database.transaction():
            check_first_write(self.database, self.project_id)
            self.database.run("make_incoming")
            self.database.run("empty_incoming")
            copied = self.database.copy_in("copy_incoming", _incoming_rows(drafts, streamed))
            inserted = dict(self._rows("insert_incoming"))
            if sum(inserted.values()) < copied and (conflict := self._row("incoming_conflict")):
                card_id, tool_call_id, held, deleted = conflict
                raise self._conflict(card_id, tool_call_id, held=held, deleted=deleted)
        return {
            label: Counts(inserted.get(label, 0), total - inserted.get(label, 0))
            for label, total in streamed.items()
        }

    def delete(self, card_ids: Sequence[str], *, force: Force | None = None) -> list[str]:
        """Soft-delete these cards; the ids that this call deleted.

        Raises NotFound for unknown ones, and without `force` CardConflict for one that an unfinished turn
        sees; nothing is deleted then.
        """
        with self.database.transaction():
            found = self.get_many(card_ids, include_deleted=True)
            if found.missing_card_ids:
                raise self._absent("card", found.missing_card_ids[0], _NO_CARD)
            gone = set(self._column("delete_cards", card_ids=list(card_ids)))
            self._use.check_change(sorted(gone), "delete", force)
        return [card_id for card_id in unique(card_ids) if card_id in gone]

    def get(self, card_id: str, *, include_deleted: bool = False) -> Card:
        """The card of this id. Raises NotFound, also for a deleted or expired one unless included."""
        found = self.get_many([card_id], include_deleted=include_deleted)
        return self._found(next(iter(found.cards), None), "card", card_id, _NO_CARD)

    def get_many(self, card_ids: Sequence[str], *, include_deleted: bool = False) -> Found:
        """The cards of these ids in the order of `card_ids`, each once. A missing one is no error."""
        wanted = unique(card_ids)
        rows = self._rows("cards_by_ids", card_ids=wanted, include_deleted=include_deleted)
        cards = {card.card_id: card for card in (decode_card(row) for (row,) in rows)}
        return Found(
            cards=[cards[card_id] for card_id in wanted if card_id in cards],
            missing_card_ids=[card_id for card_id in wanted if card_id not in cards],
        )

    def absent(self, card_ids: Sequence[str]) -> list[str]:
        """Those of `card_ids` that are no card of this project (a deleted one is none), in order."""
        return self._column("absent_card_ids", card_ids=unique(card_ids)) if card_ids else []

    def newest(self, where: CardFilter | None = None, *, limit: int | None = None) -> Iterator[Card]:
        """The cards that `where` allows, newest first, read in pages as they are asked for."""
        return paged(partial(self._page, self._dated(where or CardFilter())), page=_PAGE, limit=limit)

    def found_in(self, box_ids: Sequence[str], text: str, *, types: Sequence[str], limit: int) -> list[Card]:
        """What a search for `text` finds among the cards of these types in these boxes, newest first."""
        rows = self._rows(
            "list_cards_of_boxes",
            **text_search(text),
            types=list(types),
            box_ids=[box_id for box_id in map(as_box_id, box_ids) if box_id],
            now=self.database.now(),
            limit=limit,
        )
        return [decode_card(row) for (row,) in rows]

    def further(self, where: CardFilter, last: Card) -> Further:
        """How many cards `newest` would give after `last`. Looks at 10,000 cards, or 1000 with a text."""
        limit = COUNTED if where.text is None else _COUNTED_IN_SEARCH
        if last.created_at is None:
            return Further(0, False)
        row = self._row("count_further_cards", **_query(self._dated(where), last, limit + 1))
        assert row is not None
        return Further.counted(row[0], row[1], limit=limit)

    def resolve(self, wanted: str) -> str:
        """The full id of an id, or of a unique beginning or end of one, or the beginning of what is shown.

        Raises NotFound, AmbiguousId.
        """
        patterns = {"pattern": f"{like_escape(wanted)}%", "reversed_pattern": f"{like_escape(wanted[::-1])}%"}
        shown = shown_beginning(self.database, wanted, "public.idx_cards_shown")
        rows = self._rows("find_card_ids", wanted=wanted, shown=shown, **patterns)
        whole = [card_id for card_id, is_whole in rows if is_whole]
        return the_one("card", wanted, whole or [card_id for card_id, _ in rows], self.project_id)

    def _page(self, where: CardFilter, after: Card | None, size: int) -> list[Card]:
        asked = _query(where, after, size)
        listing = self._listing_of_few(where)
        if listing is not None:
            with self.database.aside():
                self.database.run("plan_for_few")
                rows = self._rows(listing, **asked, few=_FEW)
            if not rows or rows[0][1] <= _FEW:
                return [decode_card(row) for row, _ in rows]
        return [decode_card(row) for (row,) in self._rows("list_cards", **asked)]

    def _listing_of_few(self, where: CardFilter) -> str | None:
        """The query by an index that finds just what `where` allows, where that is likely to be little."""
        if where.card_ids is not None or where.agent_turn_id is not None or where.tool_call_id is not None:
            return "list_few_cards"
        wanted = [FINDERS[field] for field in FINDERS if getattr(where, field) is not None]
        if where.text is not None and (of_texts := finder(where.text)):
            wanted.append(of_texts)
        there = (each for each in wanted if self.database.value("index_exists", index=each.name))
        return next((each.listing for each in there), None)

    def _conflict(self, card_id: str, tool_call_id: str | None, *, held: bool, deleted: bool) -> CbxError:
        if deleted:
            show = command_line(("card", "show", card_id, "--deleted", "-o", "json"))
            hint = f"`{show} | cbx card add --card - --repair` brings it back"
            return CardConflict(f"the card id {card_id!r} is that of a deleted card", hint=hint)
        if not held and tool_call_id is not None and self.database.unique_tool_results:
            other = self._value("result_card_of_call", tool_call_id=tool_call_id)
            if other is not None:
                return CardConflict(
                    f"card {card_id!r} answers the tool call {tool_call_id!r}, as {other!r} does already",
                    hint="this database allows one result per tool-call id; import with --remap-tool-ids",
                )
        hint = "use another id, or --repair to overwrite a card of this project"
        return CardConflict(f"the card id {card_id!r} is taken", hint=hint)


def _query(where: CardFilter, after: Card | None, limit: int) -> dict[str, Any]:
    return {
        **place(where, after, limit, key="card_id"),
        **text_search(where.text),
        "types": None if where.types is None else list(where.types),
        "card_ids": None if where.card_ids is None else list(where.card_ids),
    }


def _columns(draft: CardDraft) -> dict[str, Any]:
    return {
        **{name: getattr(draft, name) for name in draft.__struct_fields__},
        "content": jsonb(draft.content),
        "tool_calls": None if draft.tool_calls is None else jsonb(draft.tool_calls),
        "metadata": jsonb(draft.metadata),
    }


def _incoming_rows(
    drafts: Iterable[tuple[int, CardDraft]], streamed: dict[int, int]
) -> Iterator[tuple[Any, ...]]:
    for label, draft in drafts:
        check_draft(draft)
        streamed[label] = streamed.get(label, 0) + 1
        yield (
            label,
            draft.card_id,
            exact_json.encode(draft.content).decode(),
            None if draft.tool_calls is None else exact_json.encode(draft.tool_calls).decode(),
            draft.tool_call_id,
            draft.ttl_seconds,
            exact_json.encode(draft.metadata).decode(),
            draft.created_at,
        )
