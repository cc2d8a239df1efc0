"""`cbx box list`."""

from collections.abc import Mapping
from typing import Annotated, cast

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
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal.list_columns import BOX_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, filtered, none_of, show_list
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.terminal.watch import between_looks
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.boxes import BOX_KINDS, INTERNAL_KINDS, BoxKind
from cardbox_cli.model.text.quantities import count


@verb(
    "list",
    "cbx box list --limit 10",
    "cbx box list -o id | head -1",
    "cbx box list --kind conversation --sort cards:desc",
    "cbx box list --since 2h --columns full-id,updated,title",
    "cbx box list --watch",
    pages=True,
    reads=True,
)
def list_boxes(
    limit: Limit = 50,
    since: Since = None,
    until: Until = None,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
    kinds: Annotated[
        list[str] | None,
        Option(
            "--kind",
            click_type=OneOf(lambda: BOX_KINDS, what="kind"),
            help="Only boxes of this kind; repeat for several.",
        ),
    ] = None,
) -> None:
    """List boxes, the last changed first.

    A table, and -o id, leave out the boxes of profiles and of requests, which cbx makes by itself, unless
    --kind names them; JSON and CSV have all. There the kind of each box stands, as far as it is known.
    """
    from cardbox_cli.store.views.boxes import BoxKindFilter, BoxViews

    start, end = parse_span(since, until)
    where = BoxKindFilter(
        since=start,
        until=end,
        kinds=tuple(cast(BoxKind, kind) for kind in kinds) if kinds else None,
        without=INTERNAL_KINDS if not kinds and _is_for_people() else (),
    )
    pause = between_looks(watch, interval)
    shown = chosen(BOX_COLUMNS, columns)
    with open_stores() as (_, boxes):
        if not boxes.database.keeps_box_info:
            shown = shown.replaced(TITLE=lambda _: "unknown")
        views = BoxViews(boxes.database, boxes.project_id)
        reading = filtered(views.newest, views.further, where)
        empty = none_of("boxes", narrowed=bool(since or until or kinds))
        listing = Listing(*reading, limit, shown, item_id=lambda box: box.box_id, empty=empty)
        show_list(listing, boxes.database, interval=pause)
        if where.without:
            _print_hidden(views.hidden(where))


def _is_for_people() -> bool:
    return session().format.kind == "text" or session().output == "id"


def _print_hidden(numbers: Mapping[str, int]) -> None:
    if numbers:
        told = " and ".join(count(number, f"{kind} box") for kind, number in numbers.items())
        announce(f"without {told}; --kind shows them, -o json all")
