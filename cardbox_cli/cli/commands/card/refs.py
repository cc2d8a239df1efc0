"""What `cbx card refs` prints: the boxes that hold a card, and the turns that these are for."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.last_ids import resolved_or_given
from cardbox_cli.cli.options.shared_options import ColumnNames, Latest, Limit
from cardbox_cli.cli.options.value_types import CARD
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal.list_columns import REFERENCE_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, looked_into, show_list
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.verb import verb
from cardbox_cli.limits import BOXES_LOOKED_INTO


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
            help="An id, whole if no such card exists, a unique beginning or end of one, or @last.",
        ),
    ],
    limit: Limit = 50,
    latest: Latest = BOXES_LOOKED_INTO.value,
    columns: ColumnNames = None,
) -> None:
    """List the boxes that hold a card, the last changed first, with its positions in each.

    TURNS are those that read (context) or write (output) the box: all that wait or run, and the latest ones.
    """
    from cardbox_cli.store.connection.project_store import Further

    shown = chosen(REFERENCE_COLUMNS, columns)
    with open_stores() as (cards, boxes):
        wanted = resolved_or_given(cards.resolve, card_id)
        listing = Listing(
            read=lambda size: boxes.refs(wanted, limit=size, latest=latest or None),
            further=lambda _: Further(boxes.count_refs(wanted, latest=latest or None) - limit, True),
            limit=limit,
            columns=shown if boxes.database.keeps_box_info else shown.replaced(TITLE=lambda _: "unknown"),
            item_id=lambda found: found.box_id,
            empty=f"no box in project {session().project_id!r} holds card {wanted!r}",
        )
        show_list(listing, boxes.database)
        if latest and boxes.are_more_than(latest):
            announce(looked_into(latest))
