"""`cbx box list`."""

from cardbox_cli.cli.parameters.inputs import parse_span
from cardbox_cli.cli.parameters.options import ColumnNames, Interval, Limit, Since, Until, Watch
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.columns import BOX, chosen, replaced
from cardbox_cli.cli.terminal.lists import Listing, none_of, show_list
from cardbox_cli.cli.terminal.watch import between_looks
from cardbox_cli.cli.verb import verb


@verb(
    examples="cbx box list --limit 10\n"
    "cbx box list -o id | head -1\n"
    "cbx box list --since 2h --columns full-id,updated,title\n"
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
        listing = Listing(
            read=lambda size: boxes.newest(where, limit=size),
            further=lambda last: boxes.further(where, last),
            limit=limit,
            columns=shown if boxes.database.keeps_box_info else replaced(shown, TITLE=lambda _: "unknown"),
            item_id=lambda box: box.box_id,
            empty=none_of("boxes", narrowed=bool(since or until)),
        )
        show_list(listing, boxes.database, interval=pause)
