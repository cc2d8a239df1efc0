"""What `cbx card refs` prints: the boxes that hold a card."""

from typing import Annotated

import typer

from cardbox_cli.cli import output
from cardbox_cli.cli.commands import examples
from cardbox_cli.cli.describe import age
from cardbox_cli.cli.inputs import resolved_or_typed
from cardbox_cli.cli.session import session
from cardbox_cli.model.boxes import Reference
from cardbox_cli.model.ids import short_id

EXAMPLES = examples(
    "  cbx card refs 5f0c2a91\n  cbx card refs 5f0c2a91 --limit 0 -o id | xargs -n1 cbx box verify"
)


def refs(
    card_id: Annotated[
        str,
        typer.Argument(
            metavar="CARD", help="An id, whole if no such card exists, or a unique beginning or end of one."
        ),
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most so many; 0 for all.")] = 50,
) -> None:
    """List the boxes that hold a card, the last changed first, with its positions in each."""
    with session().stores() as (cards, boxes), boxes.database.snapshot():
        wanted = resolved_or_typed(cards.resolve, card_id)
        keeps_titles = boxes.database.keeps_box_info

        def row(found: Reference) -> list[str]:
            title = found.title if keeps_titles else "unknown"
            places = ", ".join(map(str, found.positions))
            return [short_id(found.box_id), str(found.cards), age(found.updated_at), places, title or ""]

        output.emit_list(
            boxes.refs(wanted, limit=limit or None),
            columns=["ID", "CARDS", "AGE", "POSITIONS", "TITLE"],
            row=row,
            item_id=lambda found: found.box_id,
            empty=f"no box in project {session().project_id!r} holds card {wanted!r}",
        )
