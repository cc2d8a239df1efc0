"""`cbx box expand`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.commands.box.mended import emit_mended, tell_turns
from cardbox_cli.cli.parameters.options import BoxId
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.verb import verb


@verb(
    "cbx box expand 8b1f22c0",
    "cbx box diff $OLD $(cbx box expand $COMPRESSED -o id) && echo equal",
    reads="dry_run",
)
def command(
    box: BoxId,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the changes, write nothing.")] = False,
) -> None:
    """Make a new box with what summaries stand for, each card in its old place.

    What was appended to the compressed box stays behind it. Of a card that is gone meanwhile the id comes
    back, as the old box has it.
    """
    from cardbox_cli.box_repair import expand_box

    with session().stores() as (cards, boxes):
        made = expand_box(boxes.database, session().project_id, boxes.resolve(box), dry_run=dry_run)
        gone = cards.absent([change.card_id for change in made.changes if change.kind == "added"])
        notes = tell_turns(boxes.database, made.box_id, made.from_box_id, "box expand")
        session().made(box_id=made.box_id)
    emit_mended(made, dry_run=dry_run)
    for card_id in gone:
        announce(f"warning: card {card_id} is gone; its id is back in its place")
    for note in notes:
        announce(note)
