"""The cards of a box that are of one type, without the rest of it, however long it is."""

from cardbox_cli.model.cards import Card, decode_card
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.store.boxes import BoxStore


def cards_of_type(boxes: BoxStore, box_id: str | None, card_type: str) -> list[Card]:
    """Those that a reader sees, in order; none of a box that is not there, or that nobody names.

    Takes part in the caller's transaction or snapshot.
    """
    known = as_box_id(box_id or "")
    lines = [] if known is None else boxes.json_lines(known, [card_type])
    return [decode_card(line) for _, line in lines if line is not None]
