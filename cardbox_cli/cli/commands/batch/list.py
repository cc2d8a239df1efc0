"""`cbx batch list`. Its columns stand in `terminal/columns/batches.py`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.options.shared_options import (
    ColumnNames,
    Interval,
    Limit,
    Since,
    Until,
    Watch,
    parse_span,
)
from cardbox_cli.cli.options.value_types import OneOf
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.list_columns import BATCH_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, filtered, none_of, show_list
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.terminal.watch import between_looks
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.execution.batches import BATCH_STATUSES


@verb(
    "list",
    "cbx batch list",
    "cbx batch list --status running -o id",
    "cbx batch list --watch",
    pages=True,
    reads=True,
)
def list_batches(
    limit: Limit = 50,
    status: Annotated[
        str | None,
        Option(click_type=OneOf(lambda: BATCH_STATUSES, what="state"), help="Only in this state."),
    ] = None,
    since: Since = None,
    until: Until = None,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """List batches, newest first; those of another system's manager, `pmo`, too."""
    from cardbox_cli.store.execution.batches import BatchFilter
    from cardbox_cli.store.views.batches import BatchViews

    first, last = parse_span(since, until)
    where = BatchFilter(status=status, since=first, until=last)
    pause = between_looks(watch, interval)
    shown = chosen(BATCH_COLUMNS, columns)
    with open_database() as database:
        batches = BatchViews(database, session().project_id)
        read, further = filtered(batches.newest, batches.further, where)
        listing = Listing(
            read,
            further,
            limit,
            shown,
            item_id=lambda batch: batch.batch_id,
            empty=none_of("batches", narrowed=where != BatchFilter()),
        )
        show_list(listing, database, interval=pause)
