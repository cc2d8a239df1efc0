"""`cbx card`: the smallest units of information, one by one and by the file."""

from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.parameters.inputs import (
    confirm,
    parse_span,
    resolved_or_typed,
)
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import CARD, CARD_DEFAULT, chosen
from cardbox_cli.cli.terminal.describe import answers, count, spoken_by, time
from cardbox_cli.cli.terminal.lists import ColumnNames, Limit, Listing, show_list
from cardbox_cli.cli.terminal.watch import Interval, Watch, between_looks
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card
from cardbox_cli.model.ids import short_id, unique

if TYPE_CHECKING:
    from cardbox_cli.store.cards import CardFilter

_ELSEWHERE = ("add", "edit", "export", "import", "lint", "refs")

app = noun(
    "Add, show, list, search, delete, import and export cards.",
    elsewhere={verb: f"{__name__}.{'import_' if verb == 'import' else verb}" for verb in _ELSEWHERE},
)

CardIds = Annotated[
    list[str], typer.Argument(metavar="CARD...", help="Ids, unique beginnings or ends of ids, or @last.")
]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Created at or after: RFC 3339, or 2h for two hours ago.")
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Created before: RFC 3339, or 30m for 30 minutes ago.")
]


@app.command(epilog=examples("  cbx card show 5f0c2a91\n  cbx card show 5f0c2a91 -o json | jq .content"))
def show(
    card_ids: CardIds,
    deleted: Annotated[bool, typer.Option("--deleted", help="Show deleted and expired cards too.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when one of several is missing.")] = False,
) -> None:
    """Show cards whole. Of several, those that are missing are named on stderr."""
    with session().stores() as (cards, _), cards.database.snapshot():
        if len(card_ids) == 1:
            card = cards.get(cards.resolve(card_ids[0]), include_deleted=deleted)
            output.emit(card, table=lambda: _say_card(card), ids=[card.card_id])
            return
        wanted = unique(resolved_or_typed(cards.resolve, typed) for typed in card_ids)
        found = cards.get_many(wanted, include_deleted=deleted)
    for card_id in found.missing_card_ids:
        announce(f"missing: no card {card_id!r}")
    output.emit(
        {"cards": found.cards, "missing_card_ids": found.missing_card_ids},
        table=lambda: _say_cards(found.cards),
        ids=[card.card_id for card in found.cards],
    )
    if strict and found.missing_card_ids:
        raise NotFound(f"{len(found.missing_card_ids)} of {len(wanted)} cards are missing")


def _say_cards(cards: list[Card]) -> None:
    for index, card in enumerate(cards):
        if index:
            output.say()
        _say_card(card)


def _say_card(card: Card) -> None:
    hidden = {"type", "role", "author_id", "project_id", "created_at"}
    hidden |= {"source_message", "source_blocks", "source_line"}
    metadata = {key: value for key, value in card.metadata.items() if key not in hidden}
    output.facts(
        [
            ("card", card.card_id),
            ("type", card.type),
            ("role", card.role),
            ("author", card.author_id),
            ("created", time(card.created_at)),
            ("expires", time(card.expires_at)),
            ("deleted", time(card.deleted_at)),
            ("calls", answers(card) or None),
            ("metadata", exact_json.encode(metadata).decode() if metadata else None),
        ]
    )
    if isinstance(card.content, dict):
        announce(
            f"warning: card {card.card_id} holds content of no class that cbx knows; shown as it is stored"
        )
    output.say()
    output.say(spoken_by(card))


@app.command(
    "list",
    epilog=examples(
        "  cbx card list --limit 20\n"
        "  cbx card list --type tool.result --since 2026-11-01 -o jsonl\n"
        "  cbx card list --since 2h --columns id,created,author,preview\n"
        "  cbx card list --watch"
    ),
)
def list_(
    limit: Limit = 50,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", metavar="TYPE", help="Only this type; repeat for several."),
    ] = None,
    role: Annotated[str | None, typer.Option(metavar="R", help="Only this role.")] = None,
    author: Annotated[str | None, typer.Option(metavar="A", help="Only this author_id.")] = None,
    turn: Annotated[str | None, typer.Option(metavar="ID", help="Only this agent_turn_id.")] = None,
    step: Annotated[str | None, typer.Option(metavar="ID", help="Only this step_id.")] = None,
    trace: Annotated[str | None, typer.Option(metavar="ID", help="Only this trace_id.")] = None,
    tool_call_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Only calls and results of this id.")
    ] = None,
    since: Since = None,
    until: Until = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted and expired cards too.")] = False,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """List cards, newest first."""
    from cardbox_cli.store.cards import CardFilter

    start, end = parse_span(since, until)
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
    _list(where, limit, columns, between_looks(watch, interval))


@app.command(
    epilog=examples("  cbx card search 'payment timeout'\n  cbx card search 超时 --type tool.result")
)
def search(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help='Words, "a phrase", -word, or; for Chinese, Japanese and Korean any piece of the text.',
        ),
    ],
    limit: Limit = 50,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", metavar="TYPE", help="Only this type; repeat for several."),
    ] = None,
    columns: ColumnNames = None,
) -> None:
    """Find cards by what they say, newest first. Whole words, in any case."""
    from cardbox_cli.store.cards import CardFilter

    text = " ".join(words)
    if not text.strip():
        raise UsageError("there is nothing to search for", hint="give a word")
    _list(CardFilter(text=text, types=types or None), limit, columns)


def _list(where: "CardFilter", limit: int, columns: str | None, interval: float | None = None) -> None:
    names = chosen(CARD, CARD_DEFAULT, columns)
    with session().stores() as (cards, _):
        listing = Listing(
            read=lambda size: cards.newest(where, limit=size),
            further=lambda last: cards.further(where, last),
            limit=limit,
            columns=CARD,
            names=names,
            item_id=lambda card: card.card_id,
            empty=f"no such cards in project {session().project_id!r}",
        )
        show_list(listing, cards.database, interval=interval)


@app.command(epilog=examples("  cbx card delete 5f0c2a91 --yes"))
def delete(
    card_ids: CardIds,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Hide cards from readers. Nothing is purged; boxes keep the ids, and say so."""
    with session().stores() as (cards, _):
        wanted = unique(map(cards.resolve, card_ids))
        if not dry_run:
            confirm(f"Delete {count(len(wanted), 'card')} ({', '.join(map(short_id, wanted))})?", yes=yes)
        deleted = wanted if dry_run else cards.delete(wanted)
    answer = {"deleted_card_ids": deleted, "dry_run": dry_run}
    verb = "would delete" if dry_run else "deleted"
    output.emit(answer, table=lambda: output.say(f"{verb} {', '.join(deleted) or 'nothing'}"), ids=deleted)
