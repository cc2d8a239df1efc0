"""`cbx turn list`. Its columns stand in `terminal/columns/turns.py`."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.options.shared_options import (
    ColumnNames,
    Interval,
    Limit,
    OfAgent,
    Since,
    Until,
    Watch,
    parse_span,
)
from cardbox_cli.cli.options.value_types import OneOf
from cardbox_cli.cli.project_database import open_turns
from cardbox_cli.cli.terminal.list_columns import TURN_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, filtered, none_of, show_list
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.terminal.watch import between_looks
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.execution.turns import END_STATUSES, TURN_STATUSES

if TYPE_CHECKING:
    from cardbox_cli.store.connection.project_store import Further
    from cardbox_cli.store.views.turns import TurnFilter, TurnRow, TurnViews


@verb(
    "list",
    "cbx turn list --limit 10",
    "cbx turn list --agent clerk --status running",
    "cbx turn list --end failed --since 2h -o id",
    "cbx turn list --watch",
    pages=True,
    reads=True,
)
def list_turns(
    limit: Limit = 50,
    agent: OfAgent = None,
    status: Annotated[
        str | None, Option(click_type=OneOf(lambda: TURN_STATUSES, what="state"), help="Only in this state.")
    ] = None,
    end: Annotated[
        str | None, Option(click_type=OneOf(lambda: END_STATUSES, what="end"), help="Only that ended so.")
    ] = None,
    trace: Annotated[str | None, Option(metavar="ID", help="Only of this trace_id.")] = None,
    since: Since = None,
    until: Until = None,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """List turns, newest first."""
    from cardbox_cli.execution.views.turn_page import summary
    from cardbox_cli.model.execution.standing import ENDED
    from cardbox_cli.store.views.turns import TurnFilter

    if end is not None and status not in (None, ENDED):
        raise UsageError(
            f"--end is for turns that have ended, not {status} ones", hint="leave one of them out"
        )
    first, last = parse_span(since, until)
    status = status if end is None else ENDED
    where = TurnFilter(agent_id=agent, status=status, trace_id=trace, since=first, until=last)
    pause = between_looks(watch, interval)
    shown = chosen(TURN_COLUMNS, columns)
    with open_turns() as turns:
        read, further = filtered(turns.newest, turns.further, where)
        if end is not None:
            read, further = _with_end(turns, where, end)
        empty = none_of("turns", narrowed=where != TurnFilter())
        listing = Listing(
            lambda size: map(summary, read(size)),
            further,
            limit,
            shown,
            item_id=lambda turn: turn.agent_turn_id,
            empty=empty,
        )
        show_list(listing, turns.database, interval=pause)


def _with_end(
    turns: "TurnViews", where: "TurnFilter", end: str
) -> "tuple[Callable[[int | None], Iterable[TurnRow]], Callable[[TurnRow], Further]]":
    """How to read those that ended so. How many are behind one nobody knows: an end may take working out."""
    from cardbox_cli.execution.views.turn_page import summary
    from cardbox_cli.store.connection.project_store import Further

    def read(size: int | None) -> "Iterable[TurnRow]":
        return islice((turn for turn in turns.newest(where) if summary(turn).end_status == end), size)

    return read, lambda _: Further(0, False)
