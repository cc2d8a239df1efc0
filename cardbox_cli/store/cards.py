"""Cards in Postgres: one project's view of `public.cards`.

Writing an equal card again has no effect. Writing a different card with the same id is a conflict. Reads skip
deleted and expired cards by default. A method joins the caller's transaction, or opens its own.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from cardbox_cli.errors import CardConflict, CbxError
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, CardDraft, check_draft, decode_card
from cardbox_cli.model.ids import canonical_box_id, unique
from cardbox_cli.store.connection.database import Database, jsonb
from cardbox_cli.store.connection.project_store import (
    MAX_COUNTED,
    DateFilter,
    FurtherCount,
    ProjectStore,
    like_escape,
    page_parameters,
    read_pages,
    require_single,
    short_id_pattern,
)
from cardbox_cli.store.connection.queries import query
from cardbox_cli.store.in_use import CardUseStore, ForcedBy
from cardbox_cli.store.projects import check_first_write
from cardbox_cli.text.command_lines import command_line

# Scripts without spaces between words, which a word search cannot find: kana, Han, Hangul, fullwidth.
_UNSPACED_SCRIPTS = (
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)

# Scripts whose pairs of characters are indexed: the above without punctuation and without cased letters.
_INDEXED_SCRIPTS = _UNSPACED_SCRIPTS.replace("\uff00-\uffef", "\uff66-\uffdc")

WORD_INDEX, BIGRAM_INDEX = "public.idx_cards_text", "public.idx_cards_bigrams"


class SearchIndex(NamedTuple):
    """An index, and the name of the query that reads one page of cards by it."""

    name: str
    listing: str


# Indexes by filter field, most selective first. Databases of other programs may lack them.
FIELD_INDEXES = {
    "step_id": SearchIndex("public.idx_cards_step", "list_few_cards"),
    "trace_id": SearchIndex("public.idx_cards_trace", "list_few_cards"),
}


def index_text(database: Database, announce: Callable[[str], None] = lambda text: None) -> list[str]:
    """Build the search indexes without blocking writers, and return their names. Rebuilds an invalid index.

    The index for scripts without spaces needs a function that cbx creates with its table of versions.
    """
    from cardbox_cli.store.migrations.upgrade import build_index

    built = [WORD_INDEX]
    build_index(database, WORD_INDEX, "public.cards", query("index_text"), announce)
    if database.value("knows_bigrams"):
        build_index(database, BIGRAM_INDEX, "public.cards", query("index_bigrams"), announce)
        built.append(BIGRAM_INDEX)
    else:
        announce(
            "Chinese, Japanese and Korean text is not indexed: run `cbx db upgrade`, then this command again"
        )
    return [name.removeprefix("public.") for name in built]


def text_search(text: str | None) -> dict[str, Any]:
    """Return the parameters of a search: words, or substrings of text and JSON for scripts without spaces."""
    nothing = {"words": None, "patterns": None, "json_patterns": None}
    if text is None:
        return nothing
    if not re.search(_UNSPACED_SCRIPTS, text):
        return {**nothing, "words": text}
    parts = text.split()
    in_json = [exact_json.encode(part).decode()[1:-1] for part in parts]
    return {**nothing, "patterns": _substrings(parts), "json_patterns": _substrings(in_json)}


def find_index(text: str) -> SearchIndex | None:
    if not re.search(_UNSPACED_SCRIPTS, text):
        return SearchIndex(WORD_INDEX, "list_few_cards")
    is_indexed = re.search(_INDEXED_SCRIPTS, text) is not None
    return SearchIndex(BIGRAM_INDEX, "list_few_cards_by_bigrams") if is_indexed else None


def _substrings(parts: list[str]) -> list[str]:
    return [f"%{like_escape(part)}%" for part in parts]


Outcome = Literal["inserted", "unchanged", "repaired"]

_PAGE = 1000
# After this many new cards, the statistics of the server may be too old to plan queries well.
_MIN_ADDED_TO_ANALYZE = 1000
# Cards that a count examines during a search. Searching a card costs 100 times as much as reading it.
_MAX_COUNTED_IN_SEARCH = 1000
# If at most this many cards match, sorting them costs less than scanning all cards, newest first.
_MAX_SORTED = 10_000
_NO_CARD = "`cbx card list` shows the newest cards"


class CardWrite(msgspec.Struct, frozen=True):
    """A written card, and the effect of writing it."""

    card: Card
    outcome: Outcome


class WriteCounts(msgspec.Struct, frozen=True):
    """Number of cards that a bulk write inserted, and number of equal cards that already existed."""

    inserted: int
    unchanged: int

    @property
    def total(self) -> int:
        return self.inserted + self.unchanged

    def __add__(self, other: "WriteCounts") -> "WriteCounts":
        return WriteCounts(self.inserted + other.inserted, self.unchanged + other.unchanged)


class CardFilter(DateFilter, frozen=True, kw_only=True):
    """Filter of a list of cards. A field that is None matches any value."""

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


class CardBatch(msgspec.Struct, frozen=True):
    """Result of reading several cards: the cards found, in the requested order, and the missing ids."""

    cards: list[Card]
    missing_card_ids: list[str]


class CardStore(ProjectStore):
    def __init__(self, database: Database, project_id: str) -> None:
        super().__init__(database, project_id)
        self._use = CardUseStore(database, project_id)

    def add(self, draft: CardDraft, *, repair: bool = False, force: ForcedBy | None = None) -> CardWrite:
        """Write one card. An equal card stays `unchanged`. `repair` replaces a different or deleted card.

        Raises CardConflict if a different or deleted card, or another project, has the id. Without `force`,
        also raises it if an unfinished turn sees the card to replace. Raises InvalidCard for a card that
        cannot be stored. An error writes nothing.
        """
        check_draft(draft)
        # Only a repair may write before it is refused, and needs a savepoint to roll back to.
        with self.database.transaction(savepoint=repair):
            check_first_write(self.database, self.project_id)
            row = self._value("insert_card", **_columns(draft))
            if row is not None:
                return CardWrite(decode_card(row), "inserted")
            stored = self._row("compare_card", **_columns(draft))
            is_same, card, deleted = stored or (False, None, False)
            if is_same and not deleted:
                return CardWrite(decode_card(card), "unchanged")
            if stored is not None and repair:
                return self._overwrite(draft, is_same, force)
            raise self._conflict(draft.card_id, draft.tool_call_id, held=stored is not None, deleted=deleted)

    def _overwrite(self, draft: CardDraft, is_same: bool, force: ForcedBy | None) -> CardWrite:
        """Overwrite a card. If it `is_same`, this only restores a deleted card, which affects no turn."""
        written = CardWrite(decode_card(self._value("repair_card", **_columns(draft))), "repaired")
        if not is_same:
            self._use.check_change([draft.card_id], "repair", force)
        return written

    def add_many(self, drafts: Iterable[CardDraft]) -> WriteCounts:
        """Write a stream of cards, all or none, in constant memory. Raises as `add` does."""
        counts = self.add_labelled((0, draft) for draft in drafts)
        return counts.get(0, WriteCounts(0, 0))

    def refresh_statistics(self, added: int) -> None:
        """Analyze cards and boxes if `added` is more than the number of cards in the server's statistics.

        The server analyzes them automatically, but a minute later. Until then its plans assume few cards, and
        it reads all cards of the project for each position of a box. Call it after the transaction, because
        other transactions would wait for it. Does nothing if our role does not own the tables.
        """
        is_large = added >= _MIN_ADDED_TO_ANALYZE and not self.database.sharded
        if is_large and self.database.value("known_size") < added:
            self.database.run("analyze_cards")

    def add_labelled(self, drafts: Iterable[tuple[int, CardDraft]]) -> dict[int, WriteCounts]:
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
            label: WriteCounts(inserted.get(label, 0), total - inserted.get(label, 0))
            for label, total in streamed.items()
        }

    def delete(self, card_ids: Sequence[str], *, force: ForcedBy | None = None) -> list[str]:
        """Soft-delete these cards, all or none. Returns the ids of those that were not deleted before.

        Raises NotFound. Without `force`, raises CardConflict if an unfinished turn sees one of these cards.
        """
        with self.database.transaction():
            batch = self.get_many(card_ids, include_deleted=True)
            if batch.missing_card_ids:
                raise self._not_found("card", batch.missing_card_ids[0], _NO_CARD)
            gone = set(self._column("delete_cards", card_ids=list(card_ids)))
            self._use.check_change(sorted(gone), "delete", force)
        return [card_id for card_id in unique(card_ids) if card_id in gone]

    def get(self, card_id: str, *, include_deleted: bool = False) -> Card:
        """Return the card. Raises NotFound. `include_deleted` also finds deleted and expired cards."""
        batch = self.get_many([card_id], include_deleted=include_deleted)
        return self._require_item(next(iter(batch.cards), None), "card", card_id, _NO_CARD)

    def get_many(self, card_ids: Sequence[str], *, include_deleted: bool = False) -> CardBatch:
        """Return each card with one of these ids once, in the order of `card_ids`, and the missing ids."""
        ids = unique(card_ids)
        rows = self._column("cards_by_ids", card_ids=ids, include_deleted=include_deleted)
        cards = {card.card_id: card for card in map(decode_card, rows)}
        return CardBatch(
            cards=[cards[card_id] for card_id in ids if card_id in cards],
            missing_card_ids=[card_id for card_id in ids if card_id not in cards],
        )

    def missing_ids(self, card_ids: Sequence[str]) -> list[str]:
        """Return the ids that no card of the project has, not even a deleted one, in order."""
        return self._column("absent_card_ids", card_ids=unique(card_ids)) if card_ids else []

    def newest(self, where: CardFilter | None = None, *, limit: int | None = None) -> Iterator[Card]:
        """Yield the cards that match `where`, newest first, reading page by page."""
        where = self._resolve_dates(where or CardFilter())
        return read_pages(partial(self._page, where), page=_PAGE, limit=limit)

    def search_boxes(
        self, box_ids: Sequence[str], text: str, *, types: Sequence[str], limit: int
    ) -> list[Card]:
        """Return the cards of these types in these boxes that contain `text`, newest first."""
        canonical = list(filter(None, map(canonical_box_id, box_ids)))
        place = {"types": list(types), "box_ids": canonical, "now": self.database.now()}
        rows = self._column("list_cards_of_boxes", **text_search(text), **place, limit=limit)
        return [decode_card(row) for row in rows]

    def count_further(self, where: CardFilter, last: Card) -> FurtherCount:
        """Count the cards that `newest` would yield after `last`. Reads 10,000 cards, 1,000 in a search."""
        limit = MAX_COUNTED if where.text is None else _MAX_COUNTED_IN_SEARCH
        if last.created_at is None:
            return FurtherCount(0, False)
        row = self._row("count_further_cards", **_query(self._resolve_dates(where), last, limit + 1))
        assert row is not None
        return FurtherCount.cap(row[0], row[1], limit=limit)

    def resolve(self, wanted: str) -> str:
        """Return the full id for an id or for a unique part of one. Raises NotFound, AmbiguousId."""
        patterns = {"pattern": f"{like_escape(wanted)}%", "reversed_pattern": f"{like_escape(wanted[::-1])}%"}
        shown = short_id_pattern(self.database, wanted, "public.idx_cards_shown")
        rows = self._rows("find_card_ids", wanted=wanted, shown=shown, **patterns)
        whole = [card_id for card_id, is_whole in rows if is_whole]
        return require_single("card", wanted, whole or [card_id for card_id, _ in rows], self.project_id)

    def _page(self, where: CardFilter, after: Card | None, size: int) -> list[Card]:
        parameters = _query(where, after, size)
        listing = self._listing_of_few(where)
        if listing is not None:
            with self.database.rolled_back():
                self.database.run("plan_for_few")
                rows = self._rows(listing, **parameters, few=_MAX_SORTED)
            if not rows or rows[0][1] <= _MAX_SORTED:
                return [decode_card(row) for row, _ in rows]
        return [decode_card(row) for row in self._column("list_cards", **parameters)]

    def _listing_of_few(self, where: CardFilter) -> str | None:
        """Return the query that uses an index for this filter, or None if no index serves it."""
        if where.card_ids is not None or where.agent_turn_id is not None or where.tool_call_id is not None:
            return "list_few_cards"
        indexes = [FIELD_INDEXES[field] for field in FIELD_INDEXES if getattr(where, field) is not None]
        if where.text is not None and (text_index := find_index(where.text)):
            indexes.append(text_index)
        existing = (each for each in indexes if self.database.value("index_exists", index=each.name))
        return next((each.listing for each in existing), None)

    def _conflict(self, card_id: str, tool_call_id: str | None, *, held: bool, deleted: bool) -> CbxError:
        if deleted:
            show = command_line(("card", "show", card_id, "--deleted", "-o", "json"))
            hint = f"restore it with `{show} | cbx card add --card - --repair`"
            return CardConflict(f"the card id {card_id!r} belongs to a deleted card", hint=hint)
        if not held and tool_call_id is not None and self.database.unique_tool_results:
            other = self._value("result_card_of_call", tool_call_id=tool_call_id)
            if other is not None:
                return CardConflict(
                    f"tool call {tool_call_id!r} already has a result: card {other!r}, not {card_id!r}",
                    hint="this database allows one result per tool-call id; import with --remap-tool-ids",
                )
        hint = "use another id, or pass --repair to overwrite a card of this project"
        return CardConflict(f"the card id {card_id!r} is taken", hint=hint)


def _query(where: CardFilter, after: Card | None, limit: int) -> dict[str, Any]:
    return {
        **page_parameters(where, after, limit, key="card_id"),
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
