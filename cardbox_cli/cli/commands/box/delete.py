"""`cbx box delete`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.commands.box.members import told_of
from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("delete", "cbx box delete 8b1f22c0 --yes")
def delete_box(
    box: BoxId,
    yes: Yes = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Remove a box. Its cards stay."""
    with open_stores() as (_, boxes):
        found = boxes.get(boxes.resolve(box))
        if not dry_run:
            confirm(f"Delete box {found.box_id} ({len(found.card_ids)} cards)?", yes=yes)
            with boxes.database.transaction():
                audit(boxes.database, "box delete", **told_of(boxes.lock(found.box_id)))
                boxes.delete(found.box_id)
    verb = "would delete" if dry_run else "deleted"
    answer = {"deleted_box_id": found.box_id, "dry_run": dry_run}
    output.emit(answer, table=lambda: output.print_text(f"{verb} {found.box_id}"), ids=[found.box_id])
