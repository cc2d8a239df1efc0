"""Boxes for programs: JSON, YAML, rows of values, ids, and a line of JSON for each card."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.commands.box.show.asked import Asked
from cardbox_cli.cli.commands.box.show.reading import Look, Reading, Totals
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.json_text import Members, whole
from cardbox_cli.model.cards import Card
from cardbox_cli.model.ids import hash_ids
from cardbox_cli.providers.models import tokenizer_for

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore


def write_documents(seen: Look, asked: Asked) -> int:
    """Write what programs asked for, as it is read; how many cards are missing."""
    if session().format.delimiter is not None:
        return _write_rows(seen, asked)
    totals = [Totals(asked) for _ in seen.readings]
    if session().output == "id":
        for reading, total in zip(seen.readings, totals, strict=True):
            output.write_id(reading.box.box_id)
            if asked.strict:
                list(reading.places(total, whole=True))
    else:
        output.emit_members(_members(seen, asked, totals))
    return sum(len(each.missing_card_ids) for each in totals)


def json_lines(boxes: "BoxStore", box_id: str, asked: Asked, gone: set[str]) -> Iterator[str]:
    """The JSON of each card that is to be shown; `gone` gets the ids that lead to none."""
    cards = boxes.length(box_id) if asked.types is None else 0
    window = None if asked.strict else asked.window(cards)

    def places() -> Iterator[str | None]:
        for card_id, text in boxes.json_lines(box_id, asked.types, window):
            if text is None:
                gone.add(card_id)
            if text is not None or asked.types is None:
                yield text

    shown = places() if window is not None else asked.cut(places())
    return (text for text in shown if text is not None)


def _is_alone(asked: Asked) -> bool:
    return len(asked.box_ids) == 1


def _write_rows(seen: Look, asked: Asked) -> int:
    totals = Totals(asked)
    places = (place for reading in seen.readings for place in reading.places(totals, whole=False))
    output.write_rows(asked.columns.columns, asked.columns.arranged(places))
    return len(totals.missing_card_ids)


def _members(seen: Look, asked: Asked, totals: list[Totals]) -> Members:
    if _is_alone(asked):
        yield from _members_of(seen.readings[0], totals[0], asked)
    else:
        answers = (whole(_members_of(*each, asked)) for each in zip(seen.readings, totals, strict=True))
        yield "boxes", answers
        yield "missing_box_ids", seen.missing


def _members_of(reading: Reading, totals: Totals, asked: Asked) -> Members:
    yield from _before(reading).items()
    yield "cards", _cards(reading, totals)
    yield from _after(reading, totals, asked).items()


def _before(reading: Reading) -> dict[str, Any]:
    box = reading.box
    return {
        "box_id": box.box_id,
        "project_id": box.project_id,
        "title": box.title,
        "card_ids": box.card_ids,
    }


def _cards(reading: Reading, totals: Totals) -> Iterator[Card]:
    for place in reading.places(totals, whole=True):
        if place.slot.card is not None and place.slot.state == "present":
            yield place.slot.card


def _after(reading: Reading, totals: Totals, asked: Asked) -> dict[str, Any]:
    box = reading.box
    answer: dict[str, Any] = {
        "parent_ids": box.parent_ids,
        "missing_card_ids": totals.missing_card_ids,
        "digest": totals.digest,
        "ids_sha256": hash_ids(box.card_ids),
        "updated_at": box.updated_at,
    }
    if asked.model is not None:
        tokenizer = tokenizer_for(asked.model)
        answer["tokens"] = totals.tokens
        answer["tokens_exact"] = tokenizer.exact
        answer["tokenizer"] = tokenizer.name
    if asked.why:
        known = reading.provenance
        answer["recipe"] = None if known is None else {"name": known.recipe, "digest": known.recipe_digest}
        answer["rules"] = [
            {"position": position, "card_id": card_id, "rule": known and known.rule_of(position)}
            for position, card_id in enumerate(box.card_ids)
        ]
    return answer
