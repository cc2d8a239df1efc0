"""Columns of boxes, and of the places that a card has in them."""

from cardbox_cli.cli.terminal.columns.shared import aged
from cardbox_cli.cli.terminal.tables.layout import NOTHING, Column
from cardbox_cli.cli.terminal.tables.shown import Columns
from cardbox_cli.model.boxes import Box, Reference
from cardbox_cli.model.ids import short_id
from cardbox_cli.text import flat, format_time


def _parents(box: Box) -> str:
    return ", ".join(map(short_id, box.parent_ids)) or NOTHING


BOX: Columns = (
    Column("ID", lambda box: short_id(box.box_id)),
    Column("FULL ID", lambda box: box.box_id, extra=True),
    Column("CARDS", lambda box: str(len(box.card_ids)), right=True),
    aged("updated_at"),
    Column("UPDATED", lambda box: format_time(box.updated_at) or NOTHING, extra=True),
    Column("PARENTS", _parents, spare=3),
    Column("KIND", lambda box: getattr(box, "kind", None) or NOTHING, extra=True),
    Column("TITLE", lambda box: flat(box.title or "")),
)


def _turns(found: Reference) -> str:
    return ", ".join(f"{turn.use} of {short_id(turn.agent_turn_id)}" for turn in found.turns) or NOTHING


REFERENCE: Columns = (
    Column("ID", lambda found: short_id(found.box_id)),
    Column("FULL ID", lambda found: found.box_id, extra=True),
    Column("CARDS", lambda found: str(found.cards), right=True, spare=3),
    aged("updated_at"),
    Column("UPDATED", lambda found: format_time(found.updated_at) or NOTHING, extra=True),
    Column("POSITIONS", lambda found: ", ".join(map(str, found.positions)), spare=1),
    Column("TURNS", _turns),
    Column("TITLE", lambda found: flat(found.title or "")),
)
