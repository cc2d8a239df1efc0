"""`cbx box list`."""

from cardbox_cli.cli.parameters.inputs import parse_span
from cardbox_cli.cli.parameters.options import ColumnNames, Interval, Limit, Since, Until, Watch
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.columns import BOX
from cardbox_cli.cli.terminal.lists import Listing, filtered, none_of, show_list
from cardbox_cli.cli.terminal.shown import chosen
from cardbox_cli.cli.terminal.watch import between_looks
from cardbox_cli.cli.verb import verb


@verb(
    "cbx box list --limit 10",
    "cbx box list -o id | head -1",
    "cbx box list --since 2h --columns full-id,updated,title",
    "cbx box list --watch",
    pages=True,
)
def command(
    limit: Limit = 50,
    since: Since = None,
    until: Until = None,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """List boxes, the last changed first."""
    from cardbox_cli.store.boxes import BoxFilter

    start, end = parse_span(since, until)
    where = BoxFilter(since=start, until=end)
    pause = between_looks(watch, interval)
    shown = chosen(BOX, columns)
    with session().stores() as (_, boxes):
        if not boxes.database.keeps_box_info:
            shown = shown.replaced(TITLE=lambda _: "unknown")
        reading = filtered(boxes.newest, boxes.further, where)
        empty = none_of("boxes", narrowed=bool(since or until))
        listing = Listing(*reading, limit, shown, item_id=lambda box: box.box_id, empty=empty)
        show_list(listing, boxes.database, interval=pause)
