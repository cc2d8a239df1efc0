"""`cbx box append`."""

from cardbox_cli.cli.actor import own_output
from cardbox_cli.cli.commands.box.members import AllowDangling, CardIds, emit_box, given_cards
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError


@verb("append", "cbx box append 8b1f22c0 5f0c2a91")
def append_cards(box: BoxId, card_ids: CardIds = None, allow_dangling: AllowDangling = False) -> None:
    """Append cards to a box. Concurrent appends come one after the other; none is lost.

    Refused while a turn reads or writes the box. A worker's command appends to its turn's own output box, for
    as long as the worker has the turn.
    """
    if not card_ids:
        raise UsageError("there is nothing to append", hint="give card ids, or - to read them from stdin")
    with open_stores() as (cards, boxes), boxes.database.transaction():
        box_id = boxes.resolve(box)
        ids = given_cards(cards, card_ids, allow_dangling)
        boxes.append(box_id, ids, allow_dangling=allow_dangling, fence=own_output(box_id))
        changed = boxes.get(box_id)
    emit_box(changed)
