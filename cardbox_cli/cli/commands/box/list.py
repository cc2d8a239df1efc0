"""`cbx box list`."""

from typing import Annotated

import typer

from cardbox_cli.cli.parameters.inputs import parse_span
from cardbox_cli.cli.parameters.options import ColumnNames, Interval, Limit, Watch
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.columns import BOX, BOX_DEFAULT, chosen
from cardbox_cli.cli.terminal.describe import box_title
from cardbox_cli.cli.terminal.lists import Listing, show_list
from cardbox_cli.cli.terminal.watch import between_looks
from cardbox_cli.cli.tree import verb


@verb(
    examples="cbx box list --limit 10\n"
    "cbx box list -o id | head -1\n"
    "cbx box list --since 2h --columns full-id,updated,title\n"
    "cbx box list --watch",
    pages=True,
)
def command(
    limit: Limit = 50,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Changed at or after: RFC 3339, or 2h for two hours ago."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Last changed before: RFC 3339, or 30m for 30 minutes ago."),
    ] = None,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """List boxes, the last changed first."""
    from cardbox_cli.store.boxes import BoxFilter

    start, end = parse_span(since, until)
    where = BoxFilter(since=start, until=end)
    pause = between_looks(watch, interval)
    names = chosen(BOX, BOX_DEFAULT, columns)
    with session().stores() as (_, boxes):
        listing = Listing(
            read=lambda size: boxes.newest(where, limit=size),
            further=lambda last: boxes.further(where, last),
            limit=limit,
            columns={**BOX, "TITLE": lambda box: box_title(box, boxes) or ""},
            names=names,
            item_id=lambda box: box.box_id,
            empty=f"no such boxes in project {session().project_id!r}"
            if since or until
            else f"no boxes in project {session().project_id!r}",
        )
        show_list(listing, boxes.database, interval=pause)
