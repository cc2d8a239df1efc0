"""`cbx box replace`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.commands.box.members import AllowDangling, CardIds, emit_box, given_cards, told_of
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.verb import verb


@verb(
    "replace",
    "cbx box replace 8b1f22c0 5f0c2a91 77ab01de",
    "cbx box replace 8b1f22c0 5f0c2a91 --if-ids $(cbx box show 8b1f22c0 -o json | jq -r .ids_sha256)",
)
def replace_card(
    box: BoxId,
    card_ids: CardIds = None,
    if_ids: Annotated[
        str | None,
        Option(metavar="HASH", help="Only if the ids still hash to this: ids_sha256 of `box show -o json`."),
    ] = None,
    allow_dangling: AllowDangling = False,
) -> None:
    """Set the cards of a box; without any it becomes empty."""
    with open_stores() as (cards, boxes), boxes.database.transaction():
        ids = given_cards(cards, card_ids, allow_dangling)
        old = boxes.lock(boxes.resolve(box))
        changed = boxes.replace(old.box_id, ids, if_ids=if_ids, allow_dangling=allow_dangling)
        if changed.card_ids != old.card_ids:
            audit(boxes.database, "box replace", **told_of(old, changed))
    emit_box(changed)
