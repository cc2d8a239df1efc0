"""`cbx card show`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.last_ids import resolved_or_given
from cardbox_cli.cli.options.shared_options import CardIds
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_words import answers, full_text
from cardbox_cli.model.cards import Card
from cardbox_cli.model.ids import unique
from cardbox_cli.model.text.quantities import time
from cardbox_cli.model.text.visible_text import indented


@verb(
    "show",
    "cbx card show 5f0c2a91",
    "cbx card show 5f0c2a91 -o json | jq .content",
    pages=True,
    reads=True,
)
def show_cards(
    card_ids: CardIds,
    deleted: Annotated[bool, Option("--deleted", help="Show deleted and expired cards too.")] = False,
    strict: Annotated[bool, Option("--strict", help="Fail when one of several is missing.")] = False,
) -> None:
    """Show cards whole. Of several, those that are missing are named on stderr."""
    with open_stores() as (cards, _), cards.database.snapshot():
        if len(card_ids) == 1:
            card = cards.get(cards.resolve(card_ids[0]), include_deleted=deleted)
            output.emit(card, table=lambda: _print_card(card), ids=[card.card_id])
            return
        wanted = unique(resolved_or_given(cards.resolve, given) for given in card_ids)
        found = cards.get_many(wanted, include_deleted=deleted)
    for card_id in found.missing_card_ids:
        announce(f"missing: no card {card_id!r}")
    output.emit(
        {"cards": found.cards, "missing_card_ids": found.missing_card_ids},
        table=lambda: _print_cards(found.cards),
        ids=[card.card_id for card in found.cards],
    )
    if strict and found.missing_card_ids:
        raise NotFound(f"{len(found.missing_card_ids)} of {len(wanted)} cards are missing")


def _print_cards(cards: list[Card]) -> None:
    for index, card in enumerate(cards):
        if index:
            output.print_text()
        _print_card(card)


def _print_card(card: Card) -> None:
    hidden = {"type", "role", "author_id", "project_id", "created_at"}
    hidden |= {"source_message", "source_blocks", "source_line"}
    metadata = {key: value for key, value in card.metadata.items() if key not in hidden}
    output.facts(
        ("card", card.card_id),
        ("type", card.type),
        ("role", card.role),
        ("author", card.author_id),
        ("created", time(card.created_at)),
        ("expires", time(card.expires_at)),
        ("deleted", time(card.deleted_at)),
        ("calls", answers(card) or None),
        ("metadata", exact_json.encode(metadata).decode() if metadata else None),
    )
    if isinstance(card.content, dict):
        announce(
            f"warning: card {card.card_id} holds content of no class that cbx knows; shown as it is stored"
        )
    output.print_text()
    output.print_text(indented(full_text(card)))
