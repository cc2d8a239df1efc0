"""What `cbx box show` prints: a box, place by place, for people and for programs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cardbox_cli.cli import output
from cardbox_cli.cli.commands import examples
from cardbox_cli.cli.describe import age, box_title, count, preview, short_rule, size, spoken_by, time
from cardbox_cli.cli.inputs import resolved_or_typed
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import flat
from cardbox_cli.errors import NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import BoxView, Provenance, Slot
from cardbox_cli.model.ids import hash_ids, short_id, unique
from cardbox_cli.model.tokens import card_tokens

if TYPE_CHECKING:
    pass

EXAMPLES = examples(
    "  cbx box show 8b1f22c0\n"
    "  cbx box show 8b1f22c0 --tail 5 --full\n"
    "  cbx pack --handover delegate --args task.yaml -o id | xargs cbx box show --why"
)


def show(
    box_ids: Annotated[
        list[str], typer.Argument(metavar="BOX...", help="Ids, unique beginnings or ends of ids, or @last.")
    ],
    full: Annotated[bool, typer.Option("--full", help="Whole texts instead of previews.")] = False,
    types: Annotated[str | None, typer.Option(metavar="T,…", help="Only cards of these types.")] = None,
    tail: Annotated[int | None, typer.Option(metavar="N", min=0, help="Only the last N places.")] = None,
    why: Annotated[bool, typer.Option("--why", help="The rule that brought each card.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when a card or box is missing.")] = False,
) -> None:
    """Show what is in a box, in order. With -o jsonl: one card a line."""
    shown_types = {name.strip() for name in types.split(",")} if types else None
    with session().stores() as (_, boxes), boxes.database.snapshot():
        if len(box_ids) == 1:
            found, missing = [boxes.view(boxes.resolve(box_ids[0]))], list[str]()
        else:
            wanted = unique(resolved_or_typed(boxes.resolve, typed) for typed in box_ids)
            known = boxes.get_many(wanted)
            found, missing = [boxes.view(box.box_id) for box in known.boxes], known.missing_box_ids
        provenance = {view.box.box_id: boxes.provenance(view.box.box_id) for view in found} if why else {}
    for box_id in missing:
        announce(f"missing: no box {box_id!r}")
    if session().output == "jsonl":
        for view in found:
            for slot in _places(view, shown_types, tail):
                if slot.fate == "present":
                    output.write(exact_json.encode(slot.card).decode())
        return
    answers = [_as_json(view, _places(view, shown_types, tail), provenance) for view in found]

    def table() -> None:
        for index, view in enumerate(found):
            if index:
                output.say()
            title = box_title(view.box, boxes)
            places = _places(view, shown_types, tail)
            _say_view(view, places, full, provenance.get(view.box.box_id), why, title)

    output.emit(
        answers[0] if len(box_ids) == 1 else {"boxes": answers, "missing_box_ids": missing},
        table=table,
        ids=[view.box.box_id for view in found],
    )
    lost = [card_id for view in found for card_id in view.missing_card_ids]
    if strict and (missing or lost):
        raise NotFound(f"missing: {count(len(missing), 'box')} and {count(len(lost), 'card')}")


def _places(view: BoxView, types: set[str] | None, tail: int | None) -> list[Slot]:
    slots = [
        slot for slot in view.slots if types is None or (slot.card is not None and slot.card.type in types)
    ]
    return slots if tail is None else slots[len(slots) - tail :] if tail < len(slots) else slots


def _as_json(
    view: BoxView, slots: Sequence[Slot], provenance: dict[str, Provenance | None]
) -> dict[str, Any]:
    box = view.box
    answer: dict[str, Any] = {
        "box_id": box.box_id,
        "project_id": box.project_id,
        "title": box.title,
        "card_ids": box.card_ids,
        "cards": [slot.card for slot in slots if slot.fate == "present"],
        "parent_ids": box.parent_ids,
        "missing_card_ids": view.missing_card_ids,
        "digest": view.digest,
        "ids_sha256": hash_ids(box.card_ids),
        "updated_at": box.updated_at,
    }
    if box.box_id in provenance:
        known = provenance[box.box_id]
        answer["recipe"] = None if known is None else {"name": known.recipe, "digest": known.recipe_digest}
        answer["rules"] = [_rule(known, slot) for slot in view.slots]
    return answer


def _rule(provenance: Provenance | None, slot: Slot) -> dict[str, Any]:
    rule = None if provenance is None else provenance.rule_of(slot.position)
    return {"position": slot.position, "card_id": slot.card_id, "rule": rule}


def _say_view(
    view: BoxView,
    slots: Sequence[Slot],
    full: bool,
    provenance: Provenance | None,
    why: bool,
    title: str | None,
) -> None:
    box = view.box
    tokens = sum(card_tokens(card) for card in view.cards)
    output.facts(
        [
            ("box", box.box_id),
            ("title", title),
            ("cards", f"{len(box.card_ids)}, ~{tokens} tokens"),
            ("parents", ", ".join(box.parent_ids) or None),
            ("packed by", None if provenance is None else f"recipe {provenance.recipe}"),
            ("updated", time(box.updated_at)),
            ("digest", view.digest),
        ]
    )
    if slots:
        output.say()
    if full:
        _say_full(slots, provenance if why else None)
    elif slots:
        columns = ["#", "ID", "TYPE", "ROLE", "AGE", "SIZE", "TOKENS", *(["RULE"] if why else []), "PREVIEW"]
        now = datetime.now(UTC)
        output.print_table(columns, [_row(slot, now, provenance, why) for slot in slots])


def _row(slot: Slot, now: datetime, provenance: Provenance | None, why: bool) -> list[str]:
    card = slot.card
    rule = [_rule_text(provenance, slot)] if why else []
    if card is None:
        return [
            str(slot.position),
            short_id(slot.card_id),
            "-",
            "-",
            "-",
            "-",
            "-",
            *rule,
            "(dangling: no such card)",
        ]
    said = spoken_by(card)
    text = preview(card) if slot.fate == "present" else f"({slot.fate}) {preview(card)}"
    return [
        str(slot.position),
        short_id(card.card_id),
        card.type,
        card.role or "-",
        age(card.created_at, now),
        size(said),
        f"~{card_tokens(card)}",
        *rule,
        text,
    ]


def _rule_text(provenance: Provenance | None, slot: Slot) -> str:
    if provenance is None:
        return "unknown"
    return short_rule(provenance.rule_of(slot.position) or "appended later")


def _say_full(slots: Sequence[Slot], provenance: Provenance | None) -> None:
    for slot in slots:
        card = slot.card
        rule = f"  by {_rule_text(provenance, slot)}" if provenance is not None else ""
        kind = f"{card.type}  {card.role or '-'}" if card else "(dangling: no such card)"
        fate = f"  ({slot.fate})" if card and slot.fate != "present" else ""
        output.say(flat(f"── {slot.position}  {slot.card_id}  {kind}{fate}{rule}"))
        if card is not None:
            output.say(spoken_by(card))
        output.say()
