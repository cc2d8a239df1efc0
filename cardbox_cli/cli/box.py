"""`cbx box`: ordered lists of cards, the contexts that turns read."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cardbox_cli.cli import output
from cardbox_cli.cli.commands import examples, noun
from cardbox_cli.cli.describe import age, count, preview, short_rule, size, spoken_by, time
from cardbox_cli.cli.inputs import confirm, read_text, resolved_or_typed
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import flat
from cardbox_cli.errors import Findings, NotFound, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Box, BoxView, Provenance, Slot
from cardbox_cli.model.ids import hash_ids, short_id, unique
from cardbox_cli.model.verify import verify as findings_in
from cardbox_cli.packing.plan import card_tokens

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.cards import CardStore

app = noun("Make, show, change and verify boxes of cards.")

BoxId = Annotated[
    str, typer.Argument(metavar="BOX", help="An id, or 4 or more characters of its beginning or end.")
]
CardIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CARD...]", help="Card ids in order; - reads them from stdin, one a line."),
]
AllowDangling = Annotated[
    bool, typer.Option("--allow-dangling", help="Allow ids of cards that do not exist.")
]


@app.command(
    epilog=examples(
        "  cbx box create\n  cbx card list --type task.instruction -o id | cbx box create - --title orders"
    )
)
def create(
    card_ids: CardIds = None,
    title: Annotated[str | None, typer.Option(metavar="T", help="A name for people.")] = None,
    parent: Annotated[
        list[str] | None, typer.Option(metavar="BOX", help="A box that this one is derived from.")
    ] = None,
    allow_dangling: AllowDangling = False,
) -> None:
    """Make a box of cards, in the order given."""
    with session().stores() as (cards, boxes), boxes.database.transaction():
        ids = _card_ids(cards, card_ids, allow_dangling)
        parents = [boxes.get(boxes.resolve(typed)).box_id for typed in parent or []]
        box = boxes.create(ids, parent_ids=parents, title=title, allow_dangling=allow_dangling)
    _emit_box(box)


def _card_ids(cards: "CardStore", typed: Sequence[str] | None, allow_dangling: bool) -> list[str]:
    ids: list[str] = []
    for text in typed or []:
        if text == "-":
            ids += [line.strip() for line in read_text("-").splitlines() if line.strip()]
        else:
            ids.append(text)
    absent = set(cards.absent(ids))
    return [
        card_id if card_id not in absent else _resolved(cards, card_id, allow_dangling) for card_id in ids
    ]


def _resolved(cards: "CardStore", typed: str, allow_dangling: bool) -> str:
    try:
        return cards.resolve(typed)
    except NotFound:
        if allow_dangling:
            return typed
        raise


def _emit_box(box: Box) -> None:
    output.emit(box, table=lambda: output.say(box.box_id), ids=[box.box_id])


@app.command(
    epilog=examples(
        "  cbx box show 8b1f22c0\n"
        "  cbx box show 8b1f22c0 --tail 5 --full\n"
        "  cbx pack --handover delegate --args task.yaml -o id | xargs cbx box show --why"
    )
)
def show(
    box_ids: Annotated[
        list[str], typer.Argument(metavar="BOX...", help="Ids, or unique beginnings or ends of ids.")
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
            title = _title(view.box, boxes)
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


def _title(box: Box, boxes: "BoxStore") -> str | None:
    return box.title if boxes.database.keeps_box_info else "unknown"


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


@app.command("list", epilog=examples("  cbx box list --limit 10\n  cbx box list -o id | head -1"))
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most so many; 0 for all.")] = 50,
) -> None:
    """List boxes, the last changed first."""
    with session().stores() as (_, boxes), boxes.database.snapshot():
        output.emit_list(
            boxes.newest(limit=limit or None),
            columns=["ID", "CARDS", "AGE", "PARENTS", "TITLE"],
            row=lambda box: [
                short_id(box.box_id),
                str(len(box.card_ids)),
                age(box.updated_at),
                ", ".join(map(short_id, box.parent_ids)) or "-",
                _title(box, boxes) or "",
            ],
            item_id=lambda box: box.box_id,
            empty=f"no boxes in project {session().project_id!r}",
        )


@app.command(epilog=examples("  cbx box append 8b1f22c0 5f0c2a91"))
def append(box: BoxId, card_ids: CardIds = None, allow_dangling: AllowDangling = False) -> None:
    """Append cards to a box. Concurrent appends come one after the other; none is lost."""
    if not card_ids:
        raise UsageError("there is nothing to append", hint="give card ids, or - to read them from stdin")
    with session().stores() as (cards, boxes), boxes.database.transaction():
        box_id = boxes.resolve(box)
        boxes.append(box_id, _card_ids(cards, card_ids, allow_dangling), allow_dangling=allow_dangling)
        changed = boxes.get(box_id)
    _emit_box(changed)


@app.command(
    epilog=examples(
        "  cbx box replace 8b1f22c0 5f0c2a91 77ab01de\n"
        "  cbx box replace 8b1f22c0 5f0c2a91 --if-ids $(cbx box show 8b1f22c0 -o json | jq -r .ids_sha256)"
    )
)
def replace(
    box: BoxId,
    card_ids: CardIds = None,
    if_ids: Annotated[
        str | None,
        typer.Option(
            metavar="HASH", help="Only if the ids still hash to this: ids_sha256 of `box show -o json`."
        ),
    ] = None,
    allow_dangling: AllowDangling = False,
) -> None:
    """Set the cards of a box; without any it becomes empty."""
    with session().stores() as (cards, boxes), boxes.database.transaction():
        ids = _card_ids(cards, card_ids, allow_dangling)
        changed = boxes.replace(boxes.resolve(box), ids, if_ids=if_ids, allow_dangling=allow_dangling)
    _emit_box(changed)


@app.command(epilog=examples("  cbx box fork 8b1f22c0 --title 'what if'"))
def fork(
    box: BoxId,
    title: Annotated[str | None, typer.Option(metavar="T", help="Default: the box's own title.")] = None,
) -> None:
    """Make a new box with the same cards, whose parent is this one."""
    with session().stores() as (_, boxes):
        _emit_box(boxes.fork(boxes.resolve(box), title=title))


@app.command(epilog=examples("  cbx box verify 8b1f22c0 || echo 'not as it was packed'"))
def verify(box: BoxId) -> None:
    """Check a box. Exit 8 on findings.

    Looks at its references, its pairs of calls and results, and the digest of its packing.
    """
    with session().stores() as (_, boxes), boxes.database.snapshot():
        view = boxes.view(boxes.resolve(box))
        findings = findings_in(view, boxes.provenance(view.box.box_id))
    answer = {"box_id": view.box.box_id, "digest": view.digest, "findings": findings}

    def table() -> None:
        if not findings:
            output.say(f"box {view.box.box_id}: {len(view.slots)} cards, nothing found")
            return
        rows = [[_position(each.position), each.kind, each.message] for each in findings]
        output.print_table(["#", "FINDING", "DETAIL"], rows)

    output.emit(answer, table=table, ids=[view.box.box_id])
    if findings:
        raise Findings(f"{count(len(findings), 'finding')} in box {view.box.box_id}")


def _position(position: int | None) -> str:
    return "-" if position is None else str(position)


@app.command(epilog=examples("  cbx box delete 8b1f22c0 --yes"))
def delete(
    box: BoxId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Remove a box. Its cards stay."""
    with session().stores() as (_, boxes):
        found = boxes.get(boxes.resolve(box))
        if not dry_run:
            confirm(f"Delete box {found.box_id} ({len(found.card_ids)} cards)?", yes=yes)
            boxes.delete(found.box_id)
    verb = "would delete" if dry_run else "deleted"
    answer = {"deleted_box_id": found.box_id, "dry_run": dry_run}
    output.emit(answer, table=lambda: output.say(f"{verb} {found.box_id}"), ids=[found.box_id])
