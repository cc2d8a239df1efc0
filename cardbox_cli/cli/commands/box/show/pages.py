"""Boxes for people: what is known of a box, and a table of its places, or all of their texts."""

from collections.abc import Iterable

import msgspec

from cardbox_cli.cli.commands.box.show.asked import Asked
from cardbox_cli.cli.commands.box.show.reading import Look, Reading, Totals
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns.cards import Place
from cardbox_cli.cli.terminal.tables.layout import Rows, print_rows, rows_of
from cardbox_cli.model.card_words import full_text
from cardbox_cli.model.text.escaping import flat
from cardbox_cli.model.text.quantities import time, token_count
from cardbox_cli.model.text.visible_text import indented
from cardbox_cli.providers.models import tokenizer_for

Facts = tuple[tuple[str, str | None], ...]


class Page(msgspec.Struct, frozen=True):
    """A box as people see it: what is known of it, the texts of its table, and how many cards are missing."""

    facts: Facts
    rows: Rows
    missing: int


def pages_of(seen: Look, asked: Asked) -> list[Page]:
    """The tables of the boxes, read to their ends."""
    return [_page(reading, seen, asked) for reading in seen.readings]


def print_pages(pages: Iterable[Page]) -> None:
    """Print tables."""
    for number, page in enumerate(pages):
        _begin(number, page.facts)
        if page.rows.cells:
            output.print_text()
            print_rows(page.rows)


def print_in_full(seen: Look, asked: Asked) -> int:
    """Print whole texts as they are read; how many cards are missing."""
    missing = 0
    for number, reading in enumerate(seen.readings):
        totals, shown = Totals(asked), Totals(asked)
        # What all come to stands before them: they are read twice, and never held.
        places = sum(1 for _ in reading.places(totals, whole=reading.window() is None))
        _begin(number, _facts(reading, seen, asked, totals, places))
        if places:
            output.print_text()
        for place in reading.places(shown, whole=False):
            _print_text(place, with_rule=reading.provenance is not None)
        missing += len(totals.missing_card_ids)
    return missing


def _page(reading: Reading, seen: Look, asked: Asked) -> Page:
    totals = Totals(asked)
    places = reading.places(totals, whole=reading.window() is None)
    rows = rows_of(asked.columns.columns, asked.columns.arranged(places))
    facts = _facts(reading, seen, asked, totals, len(rows.cells))
    return Page(facts, rows, len(totals.missing_card_ids))


def _facts(reading: Reading, seen: Look, asked: Asked, totals: Totals, shown: int) -> Facts:
    """What is known of a box. One that was read in part has no digest, and the tokens of that part."""
    box, provenance = reading.box, reading.provenance
    whole = reading.window() is None
    tokens = token_count(totals.tokens, exact=tokenizer_for(asked.model).exact)
    cards = len(box.card_ids)
    return (
        ("box", box.box_id),
        ("title", box.title if seen.titles else "unknown"),
        ("cards", f"{cards}{'' if whole else f'; {shown} of them shown'}, {tokens} tokens"),
        ("parents", ", ".join(box.parent_ids) or None),
        ("packed by", None if provenance is None else f"recipe {provenance.recipe}"),
        ("updated", time(box.updated_at)),
        ("digest", totals.digest if whole else None),
    )


def _begin(number: int, facts: Facts) -> None:
    if number:
        output.print_text()
    output.facts(*facts)


def _print_text(place: Place, *, with_rule: bool) -> None:
    slot, card = place.slot, place.slot.card
    rule = f"  by {place.rule}" if with_rule else ""
    kind = f"{card.type}  {card.role or '-'}" if card else "(dangling: no such card)"
    state = f"  ({slot.state})" if card and slot.state != "present" else ""
    output.print_text(flat(f"── {slot.position}  {slot.card_id}  {kind}{state}{rule}"))
    if card is not None:
        output.print_text(indented(full_text(card)))
    output.print_text()
