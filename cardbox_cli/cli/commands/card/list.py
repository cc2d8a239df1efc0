"""`cbx card list`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.commands.card.listing import CardTypes, show_card_list
from cardbox_cli.cli.options.shared_options import (
    ColumnNames,
    Interval,
    Limit,
    Since,
    Until,
    Watch,
    parse_span,
)
from cardbox_cli.cli.options.value_types import BOX
from cardbox_cli.cli.terminal.watch import between_looks
from cardbox_cli.cli.verb import verb


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
    limit: Limit = 50,
    types: CardTypes = None,
    box: Annotated[str | None, Option(click_type=BOX, help="Only those that this box holds.")] = None,
    role: Annotated[str | None, Option(metavar="R", help="Only this role.")] = None,
    author: Annotated[str | None, Option(metavar="A", help="Only this author_id.")] = None,
    turn: Annotated[str | None, Option(metavar="ID", help="Only this agent_turn_id.")] = None,
    step: Annotated[str | None, Option(metavar="ID", help="Only this step_id.")] = None,
    trace: Annotated[str | None, Option(metavar="ID", help="Only this trace_id.")] = None,
    tool_call_id: Annotated[
        str | None, Option(metavar="ID", help="Only calls and results of this id.")
    ] = None,
    since: Since = None,
    until: Until = None,
    deleted: Annotated[bool, Option("--deleted", help="Deleted and expired cards too.")] = False,
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
    show_card_list(where, limit, columns, between_looks(watch, interval), box=box)
