"""What `cbx box show` prints: a box, place by place, for people and for programs."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.parameters.inputs import resolved_or_given
from cardbox_cli.cli.parameters.options import MOST, ColumnNames, Interval, Watch
from cardbox_cli.cli.parameters.types import BOX
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import Place, places
from cardbox_cli.cli.terminal.describe import short_rule
from cardbox_cli.cli.terminal.shown import Shown, chosen
from cardbox_cli.cli.terminal.tables import NOTHING, print_table
from cardbox_cli.cli.terminal.watch import between_looks, follow, keep_showing
from cardbox_cli.cli.verb import verb
from cardbox_cli.context.providers.registry import tokenizer_for
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.model.boxes import BoxView, Provenance, Slot
from cardbox_cli.model.card_words import full_text
from cardbox_cli.model.ids import hash_ids, unique
from cardbox_cli.model.pairing import ToolNames
from cardbox_cli.model.text.escaping import flat
from cardbox_cli.model.text.quantities import count, time, token_count
from cardbox_cli.model.text.visible_text import indented
from cardbox_cli.model.tokens import card_tokens

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What of the boxes is to be shown, and how. `columns` are those of the table."""

    box_ids: list[str]
    full: bool
    types: frozenset[str] | None
    head: int | None
    tail: int | None
    why: bool
    strict: bool
    columns: Shown
    model: str | None


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the boxes. Without titles the database has no place for them."""

    views: list[BoxView]
    missing: list[str]
    provenance: dict[str, Provenance | None]
    titles: bool


@verb(
    "cbx box show 8b1f22c0",
    "cbx box show 8b1f22c0 --tail 5 --full",
    "cbx box show @last --watch",
    "cbx box show 8b1f22c0 --sort tokens:desc | head -20",
    "cbx box show 8b1f22c0 --model gpt-4o",
    "cbx box show 8b1f22c0 --columns '#,created,author,tool,preview'",
    "cbx pack --handover delegate --args task.yaml -o id | xargs cbx box show --why",
    pages=True,
)
def command(
    box_ids: Annotated[
        list[str], Argument(click_type=BOX, help="Ids, unique beginnings or ends of ids, or @last.")
    ],
    full: Annotated[bool, Option("--full", help="Whole texts instead of previews.")] = False,
    types: Annotated[str | None, Option(metavar="T,…", help="Only cards of these types.")] = None,
    head: Annotated[int | None, Option(metavar="N", min=0, max=MOST, help="Only the first N places.")] = None,
    tail: Annotated[int | None, Option(metavar="N", min=0, max=MOST, help="Only the last N places.")] = None,
    why: Annotated[bool, Option("--why", help="The rule that brought each card.")] = False,
    strict: Annotated[bool, Option("--strict", help="Fail when a card or box is missing.")] = False,
    model: Annotated[
        str | None, Option(metavar="M", help="Count tokens as this model does. Default: an estimate.")
    ] = None,
    column_names: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """Show what is in a box, in order. With -o jsonl: one card a line."""
    if full and column_names is not None:
        raise UsageError("--full has no columns", hint="leave out --full or --columns")
    if head is not None and tail is not None:
        raise UsageError("--head and --tail exclude each other", hint="leave one of them out")
    if session().sort is not None and not session().format.has_columns:
        raise UsageError(f"--sort is for tables here, not for -o {session().output}", hint="leave it out")
    shown = chosen(places(tokenizer_for(model), with_rule=why), column_names)
    asked = _Asked(
        box_ids=box_ids,
        full=full,
        types=frozenset(name.strip() for name in types.split(",")) if types else None,
        head=head,
        tail=tail,
        why=why or any(column.name == "RULE" for column in shown.columns),
        strict=strict,
        columns=shown,
        model=model,
    )
    pause = between_looks(watch, interval)
    with session().stores() as (_, boxes):
        if session().output == "jsonl":
            _show_lines(boxes, asked, pause)
            return
        if pause is not None:
            show_again = partial(_show, asked=asked)
            keep_showing(lambda: _look(boxes, asked), show_again, interval=pause, end=True)
        seen = _look(boxes, asked)
    _show(seen, asked)


# --- a card a line


def _show_lines(boxes: "BoxStore", asked: _Asked, interval: float | None) -> None:
    """Print cards as the database formats them, as they come: a box may be too large to hold."""
    if interval is not None:
        follow(lambda: _look_for_lines(boxes, asked), interval=interval)
    with boxes.database.snapshot():
        box_ids, missing = _wanted(boxes, asked)
        _announce_missing(missing)
        lost = 0
        for box_id in box_ids:
            gone: set[str] = set()
            for line in _lines(boxes, box_id, asked, gone):
                output.write(line)
            lost += len(gone)
    _be_strict(asked, missing, lost)


def _look_for_lines(boxes: "BoxStore", asked: _Asked) -> list[str]:
    with boxes.database.snapshot():
        box_ids, _ = _wanted(boxes, asked)
        return [line for box_id in box_ids for line in _lines(boxes, box_id, asked, set())]


def _lines(boxes: "BoxStore", box_id: str, asked: _Asked, gone: set[str]) -> Iterator[str]:
    """The JSON of each card that is to be shown; `gone` gets the ids that lead to none."""

    def places() -> Iterator[str | None]:
        for card_id, text in boxes.json_lines(box_id, asked.types):
            if text is None:
                gone.add(card_id)
            if text is not None or asked.types is None:
                yield text

    shown = places() if asked.tail is None else deque(places(), asked.tail)
    return (text for text in islice(shown, asked.head) if text is not None)


# --- whole boxes


def _wanted(boxes: "BoxStore", asked: _Asked) -> tuple[list[str], list[str]]:
    """The ids of the boxes that there are, and of those that are missing. A lone one must be there."""
    if len(asked.box_ids) == 1:
        box_id = boxes.resolve(asked.box_ids[0])
        boxes.require(box_id)
        return [box_id], []
    wanted = unique(resolved_or_given(boxes.resolve, given) for given in asked.box_ids)
    there = boxes.existing(wanted)
    return [box_id for box_id in wanted if box_id in there], [each for each in wanted if each not in there]


def _look(boxes: "BoxStore", asked: _Asked) -> _Seen:
    with boxes.database.snapshot():
        box_ids, missing = _wanted(boxes, asked)
        views = [boxes.view(box_id) for box_id in box_ids]
        provenance = {box_id: boxes.provenance(box_id) for box_id in box_ids} if asked.why else {}
    return _Seen(views=views, missing=missing, provenance=provenance, titles=boxes.database.keeps_box_info)


def _show(seen: _Seen, asked: _Asked) -> None:
    _announce_missing(seen.missing)
    _emit(seen, asked)
    _be_strict(asked, seen.missing, sum(len(view.missing_card_ids) for view in seen.views))


def _announce_missing(box_ids: Sequence[str]) -> None:
    for box_id in box_ids:
        announce(f"missing: no box {box_id!r}")


def _be_strict(asked: _Asked, missing: Sequence[str], lost: int) -> None:
    if asked.strict and (missing or lost):
        raise NotFound(f"missing: {count(len(missing), 'box')} and {count(lost, 'card')}")


def _emit(seen: _Seen, asked: _Asked) -> None:
    if session().format.delimiter is not None:
        places = [place for view in seen.views for place in _rows(view, asked, seen)]
        output.write_rows(asked.columns.columns, places)
        return
    answers = [_as_json(view, asked, seen.provenance) for view in seen.views]

    def table() -> None:
        for index, view in enumerate(seen.views):
            if index:
                output.print_text()
            _print_view(view, asked, seen)

    output.emit(
        answers[0] if len(asked.box_ids) == 1 else {"boxes": answers, "missing_box_ids": seen.missing},
        table=table,
        ids=[view.box.box_id for view in seen.views],
    )


def _places(view: BoxView, asked: _Asked) -> list[Slot]:
    types = asked.types
    slots = [
        slot for slot in view.slots if types is None or (slot.card is not None and slot.card.type in types)
    ]
    first = 0 if asked.tail is None else max(len(slots) - asked.tail, 0)
    return slots[first : asked.head]


def _as_json(view: BoxView, asked: _Asked, provenance: dict[str, Provenance | None]) -> dict[str, Any]:
    box = view.box
    answer: dict[str, Any] = {
        "box_id": box.box_id,
        "project_id": box.project_id,
        "title": box.title,
        "card_ids": box.card_ids,
        "cards": [slot.card for slot in _places(view, asked) if slot.state == "present"],
        "parent_ids": box.parent_ids,
        "missing_card_ids": view.missing_card_ids,
        "digest": view.digest,
        "ids_sha256": hash_ids(box.card_ids),
        "updated_at": box.updated_at,
    }
    if asked.model is not None:
        tokenizer = tokenizer_for(asked.model)
        answer["tokens"] = sum(card_tokens(card, tokenizer) for card in view.cards)
        answer["tokens_exact"] = tokenizer.exact
        answer["tokenizer"] = tokenizer.name
    if box.box_id in provenance:
        known = provenance[box.box_id]
        answer["recipe"] = None if known is None else {"name": known.recipe, "digest": known.recipe_digest}
        answer["rules"] = [_rule(known, slot) for slot in view.slots]
    return answer


def _rule(provenance: Provenance | None, slot: Slot) -> dict[str, Any]:
    rule = None if provenance is None else provenance.rule_of(slot.position)
    return {"position": slot.position, "card_id": slot.card_id, "rule": rule}


def _print_view(view: BoxView, asked: _Asked, seen: _Seen) -> None:
    box, slots, provenance = view.box, _places(view, asked), seen.provenance.get(view.box.box_id)
    tokenizer = tokenizer_for(asked.model)
    cost = sum(card_tokens(card, tokenizer) for card in view.cards)
    output.facts(
        ("box", box.box_id),
        ("title", box.title if seen.titles else "unknown"),
        ("cards", f"{len(box.card_ids)}, {token_count(cost, exact=tokenizer.exact)} tokens"),
        ("parents", ", ".join(box.parent_ids) or None),
        ("packed by", None if provenance is None else f"recipe {provenance.recipe}"),
        ("updated", time(box.updated_at)),
        ("digest", view.digest),
    )
    if slots:
        output.print_text()
    if asked.full:
        _print_full(slots, provenance)
    elif slots:
        print_table(asked.columns.columns, _rows(view, asked, seen))


def _rows(view: BoxView, asked: _Asked, seen: _Seen) -> Iterable[Place]:
    provenance = seen.provenance.get(view.box.box_id)
    tools = _tools(view)
    return asked.columns.arranged(
        Place(slot, _rule_text(provenance, slot), tools.get(slot.position, NOTHING))
        for slot in _places(view, asked)
    )


def _tools(view: BoxView) -> dict[int, str]:
    """The tools that cards call or answer for, by their positions in the whole box."""
    names = ToolNames()
    found = ((slot.position, names.of(slot.card)) for slot in view.slots if slot.card is not None)
    return {position: name for position, name in found if name is not None}


def _rule_text(provenance: Provenance | None, slot: Slot) -> str:
    if provenance is None:
        return "unknown"
    return short_rule(provenance.rule_of(slot.position) or "appended later")


def _print_full(slots: Sequence[Slot], provenance: Provenance | None) -> None:
    for slot in slots:
        card = slot.card
        rule = f"  by {_rule_text(provenance, slot)}" if provenance is not None else ""
        kind = f"{card.type}  {card.role or '-'}" if card else "(dangling: no such card)"
        state = f"  ({slot.state})" if card and slot.state != "present" else ""
        output.print_text(flat(f"── {slot.position}  {slot.card_id}  {kind}{state}{rule}"))
        if card is not None:
            output.print_text(indented(full_text(card)))
        output.print_text()
