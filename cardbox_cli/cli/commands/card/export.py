"""`cbx card export`: a box as a conversation file."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.parameters.inputs import write_text
from cardbox_cli.cli.parameters.types import BOX, FILE, OneOf
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.conversations.conversation import Rereadable
from cardbox_cli.conversations.formats.registry import exported_names, exporter_named
from cardbox_cli.model.cards import Card
from cardbox_cli.providers.registry import DEFAULT

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore


@verb(
    "cbx card export --box 8b1f22c0 --to openai > chat.json",
    "cbx card export --box 8b1f22c0 --to claude-code > session.jsonl",
    pages=True,
    reads=True,
)
def command(
    box: Annotated[
        str, Option(click_type=BOX, help="The box: an id, a unique beginning or end of one, or @last.")
    ],
    to: Annotated[str, Option(click_type=OneOf(exported_names, what="format"), help="The format.")] = DEFAULT,
    out: Annotated[
        Path | None, Option("--out", click_type=FILE, help="Write to a file instead of stdout.")
    ] = None,
) -> None:
    """Print a box as a conversation. What was imported comes out as it went in."""
    with session().stores() as (_, boxes), boxes.database.snapshot():
        box_id = boxes.resolve(box)
        boxes.require(box_id)
        gone: dict[str, None] = {}
        cards = Rereadable(partial(_cards_of, boxes, box_id, gone))
        text = exporter_named(to)(cards)
        if out is None or str(out) == "-":
            output.write_pieces(text)
        else:
            write_text(out, chain(text, "\n"))
    for card_id in gone:
        announce(f"warning: card {card_id} is gone and was left out")


def _cards_of(boxes: "BoxStore", box_id: str, gone: dict[str, None]) -> Iterator[Card]:
    """The cards that a reader of the box sees, in order; `gone` gets the ids that lead to none."""
    for slot in boxes.stream(box_id):
        if slot.card is not None and slot.state == "present":
            yield slot.card
        else:
            gone[slot.card_id] = None
