"""`cbx chat transcript`."""

from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.commands.chat.talking import room_of
from cardbox_cli.cli.options.shared_options import ChatKey, ColumnNames, Limit
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, chosen
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.text.escaping import flat, spelled
from cardbox_cli.model.text.quantities import time

if TYPE_CHECKING:
    from cardbox_cli.model.chats import Entry


@verb(
    "transcript",
    "cbx chat transcript telegram-chat-42",
    "cbx chat transcript telegram-chat-42 --limit 0 -o jsonl",
    pages=True,
    reads=True,
)
def show_transcript(key: ChatKey, limit: Limit = 30, columns: ColumnNames = None) -> None:
    """Print the last entries of a chat's transcript, in order: what users said, and what was really sent."""
    from cardbox_cli.chat.views import entries

    shown = chosen(_ENTRY, columns)
    with open_database() as database, database.snapshot():
        found = entries(room_of(database), key, limit=limit or None)
    output.emit_list(
        map(_as_json, found),
        columns=shown,
        item_id=lambda entry: entry["card_id"],
        empty=f"nothing was said in chat {spelled(key)}",
    )


def _as_json(entry: "Entry") -> dict[str, Any]:
    from cardbox_cli.model.chats import said_at, told_of

    card = entry.card
    return {
        "position": entry.position,
        "role": entry.role,
        "text": entry.text,
        "card_id": entry.card_id,
        "state": "gone" if card is None else "present",
        "told": {} if card is None else told_of(card),
        "said_at": None if card is None else said_at(card),
        "created_at": None if card is None else card.created_at,
    }


_ENTRY = (
    Column("#", lambda entry: str(entry["position"]), right=True),
    Column("SAID", lambda entry: time(entry["said_at"]) or NOTHING, spare=1),
    Column("ROLE", lambda entry: entry["role"] or NOTHING),
    Column("TEXT", lambda entry: flat(entry["text"]) if entry["state"] == "present" else "(card is gone)"),
)
