"""`cbx card delete`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.actor import audit, forced, refuse_inside_turn
from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.options.shared_options import CardIds, ForceCard
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.model.text.escaping import spelled
from cardbox_cli.model.text.quantities import count


@verb("delete", "cbx card delete 5f0c2a91 --yes")
def delete_cards(
    card_ids: CardIds,
    yes: Yes = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be deleted.")] = False,
    force: ForceCard = False,
) -> None:
    """Hide cards from readers. Nothing is purged; boxes keep the ids, and say so.

    Refused for cards that an unfinished turn sees, and from inside the command of a turn.
    """
    refuse_inside_turn("delete cards")
    with open_stores() as (cards, _):
        wanted = unique(map(cards.resolve, card_ids))
        if not dry_run:
            confirm(f"Delete {count(len(wanted), 'card')} ({', '.join(map(short_id, wanted))})?", yes=yes)
        database = cards.database
        with database.aside() if dry_run else database.transaction():
            deleted = cards.delete(wanted, force=forced(force, database))
            if deleted:
                audit(database, "card delete", card_ids=deleted)
    answer = {"deleted_card_ids": deleted, "dry_run": dry_run}
    verb = "would delete" if dry_run else "deleted"
    named = ", ".join(map(spelled, deleted)) or "nothing"
    output.emit(answer, table=lambda: output.print_text(f"{verb} {named}"), ids=deleted)
