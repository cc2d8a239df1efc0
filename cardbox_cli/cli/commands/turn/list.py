"""`cbx turn list`. Its columns stand in `terminal/columns.py`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.parameters.inputs import parse_span
from cardbox_cli.cli.parameters.options import ColumnNames, Interval, Limit, OfAgent, Since, Until, Watch
from cardbox_cli.cli.parameters.types import OneOf
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.columns import TURN
from cardbox_cli.cli.terminal.lists import Listing, filtered, none_of, show_list
from cardbox_cli.cli.terminal.shown import chosen
from cardbox_cli.cli.terminal.watch import between_looks
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.execution.turns import TURN_STATUSES


@verb(
    "cbx turn list --limit 10",
    "cbx turn list --agent clerk --status running",
    "cbx turn list --since 2h -o jsonl | jq -r 'select(.end_status==\"failed\").agent_turn_id'",
    "cbx turn list --watch",
    pages=True,
)
def command(
    limit: Limit = 50,
    agent: OfAgent = None,
    status: Annotated[
        str | None, Option(click_type=OneOf(lambda: TURN_STATUSES, what="state"), help="Only in this state.")
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
    from cardbox_cli.store.views.turns import TurnFilter

    start, end = parse_span(since, until)
    where = TurnFilter(agent_id=agent, status=status, trace_id=trace, since=start, until=end)
    pause = between_looks(watch, interval)
    shown = chosen(TURN, columns)
    with session().turns() as turns:
        read, further = filtered(turns.newest, turns.further, where)
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
