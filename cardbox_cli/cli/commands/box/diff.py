"""What `cbx box diff` prints: how a box differs from another, for people and for programs."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.options.value_types import BOX
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import box_title
from cardbox_cli.cli.terminal.output import INDENT, compared, indented
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Findings
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Box, Slot
from cardbox_cli.model.card_words import full_text, preview
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.diff.boxes import BoxDiff, Change
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.text.escaping import flat

# kind -> the mark before a line, and its colour.
_LOOKS = {"removed": ("-", "red"), "added": ("+", "green"), "moved": (">", "cyan"), "changed": ("~", "bold")}
_PREVIEW = 60
# Comparing the texts of two cards takes milliseconds; nobody waits for ten thousand of them unasked.
_MOST_TEXTS = 500


@verb(
    "diff",
    "cbx box diff 8b1f22c0 77ab01de",
    "cbx box diff 8b1f22c0 77ab01de --full | less",
    "cbx box diff 8b1f22c0 77ab01de -o json | jq .patch",
    "cbx box diff 8b1f22c0 77ab01de -o id | xargs cbx card show",
    pages=True,
    reads=True,
)
def diff_boxes(
    a: Annotated[str, Argument(click_type=BOX, help="The old box: an id, or a beginning or end of one.")],
    b: Annotated[str, Argument(click_type=BOX, help="The new box.")],
    full: Annotated[
        bool, Option("--full", help="Whole texts, also of cards that were added or removed.")
    ] = False,
) -> None:
    """Show how one box differs from another: cards added, removed, moved and changed. Exit 8 if any.

    A card is changed when another of its type and role stands in its place, or one that was edited from it.
    With -o id: the cards that only the second box has.
    """
    with open_stores() as (_, boxes), boxes.database.snapshot():
        found = boxes.diff(boxes.resolve(a), boxes.resolve(b))
        titles = [box_title(box, boxes) for box in (found.a, found.b)]
    changes = found.changes
    if session().output == "jsonl":
        for change in changes:
            output.write(exact_json.encode(_as_json(change)).decode())
    else:
        output.emit(
            # Making the patch takes time, and only these print it.
            _answer(found) if session().format.kind == "document" else None,
            table=lambda: _print_text(found, titles, full=full),
            ids=[change.b.card_id for change in changes if change.b and change.kind != "moved"],
        )
    if changes:
        raise Findings(f"the boxes differ: {_summary(changes)}")


def _summary(changes: Sequence[Change]) -> str:
    numbers = Counter(change.kind for change in changes)
    return ", ".join(
        f"{numbers[kind]} {kind}" for kind in ("added", "removed", "moved", "changed") if numbers[kind]
    )


# --- for programs


def _answer(found: BoxDiff) -> dict[str, Any]:
    return {
        "a": _named(found.a),
        "b": _named(found.b),
        "equal": not found.changes,
        "changes": [_as_json(change) for change in found.changes],
        "patch": found.patch,
    }


def _named(box: Box) -> dict[str, Any]:
    return {"box_id": box.box_id, "title": box.title, "cards": len(box.card_ids)}


def _as_json(change: Change) -> dict[str, Any]:
    return {"kind": change.kind, "a": _place(change.a), "b": _place(change.b)}


def _place(slot: Slot | None) -> dict[str, Any] | None:
    if slot is None:
        return None
    card = slot.card
    return {
        "position": slot.position,
        "card_id": slot.card_id,
        "state": slot.state,
        "type": card.type if card else None,
        "role": card.role if card else None,
        "text": full_text(card) if card else None,
    }


# --- for people


def _print_text(found: BoxDiff, titles: Sequence[str | None], *, full: bool) -> None:
    if not found.changes:
        return
    for mark, box, title in zip(("---", "+++"), (found.a, found.b), titles, strict=True):
        output.print_painted([("bold", flat(f"{mark} {short_id(box.box_id)}  {title or ''}").rstrip())])
    rows = [_cells(change) for change in found.changes]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, (change, cells) in enumerate(zip(found.changes, rows, strict=True)):
        mark, colour = _LOOKS[change.kind]
        below = _text_below(change, full=full) if full or number < _MOST_TEXTS else []
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        first = _first_words(change, compared=bool(below) and change.kind == "changed")
        output.print_painted([(colour, f"{mark} {line}  {first}".rstrip())])
        if below:
            output.print_painted(below)
    if len(rows) > _MOST_TEXTS and not full:
        announce(f"only among the first {_MOST_TEXTS} differences are texts compared; --full compares all")


def _cells(change: Change) -> list[str]:
    slot = change.b or change.a
    assert slot is not None
    kind = [slot.card.type, slot.card.role or "-"] if slot.card else ["-", "-"]
    places = [str(each.position) for each in (change.a, change.b) if each]
    ids = [short_id(each.card_id) for each in (change.a, change.b) if each]
    return [flat(cell) for cell in ("→".join(dict.fromkeys(places)), "→".join(dict.fromkeys(ids)), *kind)]


def _first_words(change: Change, *, compared: bool) -> str:
    """What stands behind the type of a card: how it begins, unless its text follows."""
    slot = change.b or change.a
    if slot is None or slot.card is None:
        return "(dangling: no such card)"
    state = "" if slot.state == "present" else f"({slot.state}) "
    return state if compared else f"{state}{preview(slot.card, _PREVIEW)}"


def _text_below(change: Change, *, full: bool) -> list[tuple[str, str]]:
    """What to print below the line of a change, as painted pieces."""
    old, new = (slot.card if slot else None for slot in (change.a, change.b))
    if change.kind == "changed" and old and new:
        return _compared(old, new, full=full)
    card = new or old
    if card is None or change.kind == "moved" or not full:
        return []
    return [(_LOOKS[change.kind][1], indented(_said(card)))]


def _compared(old: Card, new: Card, *, full: bool) -> list[tuple[str, str]]:
    before, after = _said(old), _said(new)
    if before == after:
        return [("", f"{INDENT}(the same text: {_else_different(old, new)})")]
    return compared(before, after, full=full)


def _said(card: Card) -> str:
    """What a card says, its JSON laid out so that lines can be compared."""
    text = card_text(card.content)
    if isinstance(card.content, TextContent) or text[:1] not in ("{", "["):
        return full_text(card)
    return full_text(card).replace(text, msgspec.json.format(text, indent=2), 1)


def _else_different(old: Card, new: Card) -> str:
    parts = [
        name
        for name in ("content", "tool_calls", "tool_call_id", "ttl_seconds")
        if getattr(old, name) != getattr(new, name)
    ]
    keys = [
        f"metadata.{key}"
        for key in {**old.metadata, **new.metadata}
        if key != "created_at" and old.metadata.get(key) != new.metadata.get(key)
    ]
    return f"they differ in {', '.join(parts + keys)}" if parts or keys else "the same card under another id"
