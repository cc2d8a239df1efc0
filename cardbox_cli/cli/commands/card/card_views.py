"""`cbx card list, search, show` and `refs`."""

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.last_ids import resolved_or_given
from cardbox_cli.cli.options import shared_options
from cardbox_cli.cli.options.value_types import BOX, CARD, CARD_TYPE
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import CARD_COLUMNS, REFERENCE_COLUMNS, short_or_nothing
from cardbox_cli.cli.terminal.list_output import (
    Listing,
    empty_note,
    filter_readers,
    searched_boxes_note,
    show_list,
)
from cardbox_cli.cli.terminal.table_layout import Column, Columns, choose_columns, paint
from cardbox_cli.cli.terminal.watch import poll_interval
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound
from cardbox_cli.limits import MAX_BOXES_SEARCHED
from cardbox_cli.model import exact_json
from cardbox_cli.model.ids import unique
from cardbox_cli.model.pairing import call_reference, full_text
from cardbox_cli.text.escaping import indent_lines
from cardbox_cli.text.times import format_time

if TYPE_CHECKING:
    from cardbox_cli.model.cards import Card


CardTypes = Annotated[
    list[str] | None, Option("--type", "-t", click_type=CARD_TYPE, help="Show only this type. Repeatable.")
]


@verb(
    "list",
    "cbx card list --limit 20",
    "cbx card list --box 8b1f22c0 --sort size:desc",
    "cbx card list --type tool.result --since 2026-11-01 -o jsonl",
    "cbx card list --since 2h --columns id,created,author,preview",
    "cbx card list --watch",
    pages=True,
    reads=True,
)
def list_cards(
    limit: shared_options.Limit = 50,
    types: CardTypes = None,
    box: Annotated[str | None, Option(click_type=BOX, help="Only cards of this box.")] = None,
    role: Annotated[str | None, Option(metavar="ROLE", help="Only this role.")] = None,
    author: Annotated[str | None, Option(metavar="ID", help="Only this author_id.")] = None,
    turn: Annotated[str | None, Option(metavar="ID", help="Only this agent_turn_id.")] = None,
    step: Annotated[str | None, Option(metavar="ID", help="Only this step_id.")] = None,
    trace: Annotated[str | None, Option(metavar="ID", help="Only this trace_id.")] = None,
    tool_call_id: Annotated[
        str | None, Option(metavar="ID", help="Only calls and results with this id.")
    ] = None,
    since: shared_options.Since = None,
    until: shared_options.Until = None,
    deleted: Annotated[bool, Option("--deleted", help="Include deleted and expired cards.")] = False,
    columns: Annotated[str | None, shared_options.column_option("id,created,preview")] = None,
    watch: shared_options.Watch = False,
    interval: shared_options.Interval = 1.0,
) -> None:
    """List cards, newest first."""
    from cardbox_cli.store.cards import CardFilter

    start, end = shared_options.parse_span(since, until)
    where = CardFilter(
        types=types or None,
        role=role,
        author_id=author,
        agent_turn_id=turn,
        step_id=step,
        trace_id=trace,
        tool_call_id=tool_call_id,
        since=start,
        until=end,
        include_deleted=deleted,
    )
    pause = poll_interval(watch, interval)
    shown = choose_columns(CARD_COLUMNS, columns)
    with open_stores() as (cards, boxes):
        if box is not None:
            box_id = boxes.resolve(box)
            boxes.require(box_id)
            where = msgspec.structs.replace(where, card_ids=boxes.id_lists([box_id])[box_id])
        reading = filter_readers(cards.newest, cards.count_further, where)
        empty = empty_note("cards", narrowed=True)
        listing = Listing(*reading, limit, shown, item_id=lambda card: card.card_id, empty=empty)
        show_list(listing, cards.database, interval=pause)


@verb(
    "search",
    "cbx card search 'payment timeout'",
    "cbx card search 超时 --type tool.result",
    pages=True,
    reads=True,
)
def search_cards(
    words: Annotated[
        list[str],
        Argument(
            metavar="TEXT...",
            help='Words, "a phrase", -word, or; also any substring in Chinese, Japanese and Korean.',
        ),
    ],
    limit: shared_options.Limit = 50,
    types: CardTypes = None,
    columns: Annotated[str | None, shared_options.column_option("id,type,match")] = None,
) -> None:
    """Find cards by the text in them, newest first. Matches whole words in any case.

    MATCH is the text around the first match. BOX is the oldest box with the card, by its last
    change, among the 100 most recently changed boxes; `cbx card refs` searches more boxes.
    """
    from cardbox_cli.inspect.search import CardSearch

    search = CardSearch(" ".join(words), types)
    shown = choose_columns(_search_columns(search.pattern), columns)
    with open_stores() as (cards, _):
        listing = Listing(
            partial(search.newest, cards),
            partial(search.further, cards),
            limit,
            shown,
            item_id=lambda card: card.card_id,
            empty=empty_note("cards", narrowed=True),
        )
        show_list(listing, cards.database)


*_OF_CARDS, _PREVIEW = CARD_COLUMNS
SEARCH_COLUMNS: Columns = (
    *_OF_CARDS,
    _PREVIEW._replace(extra=True),
    Column("BOX", lambda card: short_or_nothing(card.box_id), spare=1),
    Column("MATCH", lambda card: card.match, overflow="cut"),
)


def _search_columns(words: re.Pattern[str] | None) -> Columns:
    if words is None:
        return SEARCH_COLUMNS
    *others, match = SEARCH_COLUMNS
    return (*others, match._replace(paint=partial(words.sub, lambda word: paint("red", word[0]))))


@verb(
    "show", "cbx card show 5f0c2a91", "cbx card show 5f0c2a91 -o json | jq .content", pages=True, reads=True
)
def show_cards(
    card_ids: shared_options.CardIds,
    deleted: Annotated[bool, Option("--deleted", help="Also show deleted and expired cards.")] = False,
    strict: Annotated[bool, Option("--strict", help="Fail if any of the cards is missing.")] = False,
) -> None:
    """Show complete cards. If some cards are missing, cbx names them on stderr."""
    with open_stores() as (cards, _), cards.database.snapshot():
        if len(card_ids) == 1:
            card = cards.get(cards.resolve(card_ids[0]), include_deleted=deleted)
            output.emit(card, table=lambda: _print_card(card), ids=[card.card_id])
            return
        full_ids = unique(resolved_or_given(cards.resolve, given) for given in card_ids)
        result = cards.get_many(full_ids, include_deleted=deleted)
    for card_id in result.missing_card_ids:
        announce(f"missing: no card {card_id!r}")
    output.emit(
        {"cards": result.cards, "missing_card_ids": result.missing_card_ids},
        table=lambda: _print_cards(result.cards),
        ids=[card.card_id for card in result.cards],
    )
    if strict and result.missing_card_ids:
        raise NotFound(f"{len(result.missing_card_ids)} of {len(full_ids)} cards are missing")


def _print_cards(cards: "list[Card]") -> None:
    for index, card in enumerate(cards):
        if index:
            output.print_text()
        _print_card(card)


def _print_card(card: "Card") -> None:
    hidden = {"type", "role", "author_id", "project_id", "created_at"}
    hidden |= {"source_message", "source_blocks", "source_line"}
    metadata = {key: value for key, value in card.metadata.items() if key not in hidden}
    output.facts(
        ("card", card.card_id),
        ("type", card.type),
        ("role", card.role),
        ("author", card.author_id),
        ("created", format_time(card.created_at)),
        ("expires", format_time(card.expires_at)),
        ("deleted", format_time(card.deleted_at)),
        ("calls", call_reference(card) or None),
        ("metadata", exact_json.encode(metadata).decode() if metadata else None),
    )
    if isinstance(card.content, dict):
        announce(f"warning: card {card.card_id} has content of an unknown class; it is shown as stored")
    output.print_text()
    output.print_text(indent_lines(full_text(card)))


@verb(
    "refs",
    "cbx card refs 5f0c2a91",
    "cbx card refs 5f0c2a91 --limit 0 -o id | xargs -n1 cbx box verify",
    pages=True,
    reads=True,
)
def list_card_references(
    card_id: Annotated[
        str,
        Argument(
            click_type=CARD,
            help="Full id, or a unique part of 4 or more characters at its start or end, or @last. For "
            "a missing card, pass the full id.",
        ),
    ],
    limit: shared_options.Limit = 50,
    latest: shared_options.Latest = MAX_BOXES_SEARCHED.value,
    columns: Annotated[str | None, shared_options.column_option("id,positions,title")] = None,
) -> None:
    """List the boxes that contain a card and its positions in them, most recently changed first.

    TURNS are the turns that read (context) or write (output) the box: all unfinished turns and the latest.
    """
    from cardbox_cli.store.connection.project_store import FurtherCount

    shown = choose_columns(REFERENCE_COLUMNS, columns)
    with open_stores() as (cards, boxes):
        full_id = resolved_or_given(cards.resolve, card_id)
        listing = Listing(
            read=lambda size: boxes.refs(full_id, limit=size, latest=latest or None),
            further=lambda _: FurtherCount(boxes.count_refs(full_id, latest=latest or None) - limit, True),
            limit=limit,
            columns=shown
            if boxes.database.keeps_box_info
            else shown.replace_texts(TITLE=lambda _: "unknown"),
            item_id=lambda reference: reference.box_id,
            empty=f"no box in project {session().project_id!r} holds card {full_id!r}",
        )
        show_list(listing, boxes.database)
        if latest and boxes.has_more_than(latest):
            announce(searched_boxes_note(latest))
