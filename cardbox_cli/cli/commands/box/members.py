"""The cards that a command line puts into a box, and how a changed box is printed and told to the audit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cardbox_cli.cli.last_ids import LAST
from cardbox_cli.cli.options.input_files import read_text
from cardbox_cli.cli.options.value_types import CARD
from cardbox_cli.cli.terminal import output
from cardbox_cli.errors import NotFound
from cardbox_cli.model.boxes import Box
from cardbox_cli.model.ids import hash_ids

if TYPE_CHECKING:
    from cardbox_cli.store.cards import CardStore


CardIds = Annotated[
    list[str] | None,
    Argument(click_type=CARD, help="Card ids in order; - reads them from stdin, one a line."),
]
AllowDangling = Annotated[bool, Option("--allow-dangling", help="Allow ids of cards that do not exist.")]


def given_cards(cards: "CardStore", given: Sequence[str] | None, allow_dangling: bool) -> list[str]:
    ids: list[str] = []
    for text in given or []:
        if text == "-":
            ids += [line.strip() for line in read_text("-").splitlines() if line.strip()]
        else:
            ids.append(text)
    absent = set(cards.absent(ids))
    return [card_id if card_id not in absent else resolved(cards, card_id, allow_dangling) for card_id in ids]


def resolved(cards: "CardStore", given: str, allow_dangling: bool) -> str:
    try:
        return cards.resolve(given)
    except NotFound:
        if allow_dangling and given != LAST:
            return given
        raise


def emit_box(box: Box) -> None:
    output.emit(box, table=lambda: output.print_text(box.box_id), ids=[box.box_id])


def told_of(box: Box, changed: Box | None = None) -> dict[str, Any]:
    """What the audit says of a box as it was, and as it was `changed`; the ids themselves may be many."""
    before = {"box_id": box.box_id, "cards": len(box.card_ids), "ids_sha256": hash_ids(box.card_ids)}
    if changed is None:
        return before
    after = {"cards": len(changed.card_ids), "ids_sha256": hash_ids(changed.card_ids)}
    return {**before, "after": after}
