"""`cbx box list, diff` and `verify`, which only read boxes."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.options import shared_options
from cardbox_cli.cli.options.value_types import BOX, OneOf
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import BOX_COLUMNS, box_title
from cardbox_cli.cli.terminal.list_output import Listing, empty_note, filter_readers, show_list
from cardbox_cli.cli.terminal.output import INDENT, compare_texts, indent_below
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, choose_columns, print_table
from cardbox_cli.cli.terminal.watch import poll_interval
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Findings
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import BOX_KINDS, INTERNAL_KINDS, Box, BoxKind, Slot
from cardbox_cli.model.ids import short_id
from cardbox_cli.text.escaping import flatten
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.model.cards import Card
    from cardbox_cli.model.diff import BoxChange, BoxDiff


@verb(
    "list",
    "cbx box list --limit 10",
    "cbx box list -o id | head -1",
    "cbx box list --kind conversation --sort cards:desc",
    "cbx box list --since 2h --columns full-id,updated,title",
    "cbx box list --watch",
    pages=True,
    reads=True,
)
def list_boxes(
    limit: shared_options.Limit = 50,
    since: shared_options.Since = None,
    until: shared_options.Until = None,
    columns: Annotated[str | None, shared_options.column_option("id,cards,title")] = None,
    watch: shared_options.Watch = False,
    interval: shared_options.Interval = 1.0,
    kinds: Annotated[
        list[str] | None,
        Option(
            "--kind",
            click_type=OneOf(lambda: BOX_KINDS, what="kind"),
            help="Show only boxes of this kind. Repeatable.",
        ),
    ] = None,
) -> None:
    """List boxes, most recently changed first.

    Tables and -o id hide the boxes of profiles and requests, which cbx creates automatically. Show them with
    --kind; JSON and CSV include all boxes and their kinds.
    """
    from cardbox_cli.store.views.box_views import BoxKindFilter, BoxViews

    start, end = shared_options.parse_span(since, until)
    is_for_people = session().format.kind == "text" or session().output == "id"
    where = BoxKindFilter(
        since=start,
        until=end,
        kinds=tuple(cast(BoxKind, kind) for kind in kinds) if kinds else None,
        without=INTERNAL_KINDS if not kinds and is_for_people else (),
    )
    pause = poll_interval(watch, interval)
    shown = choose_columns(BOX_COLUMNS, columns)
    with open_stores() as (_, boxes):
        if not boxes.database.keeps_box_info:
            shown = shown.replace_texts(TITLE=lambda _: "unknown")
        views = BoxViews(boxes.database, boxes.project_id)
        reading = filter_readers(views.newest, views.further, where)
        empty = empty_note("boxes", narrowed=bool(since or until or kinds))
        listing = Listing(*reading, limit, shown, item_id=lambda box: box.box_id, empty=empty)
        show_list(listing, boxes.database, interval=pause)
        hidden = views.hidden(where) if where.without else {}
    if hidden:
        counts = " and ".join(format_count(number, f"{kind} box") for kind, number in hidden.items())
        announce(f"{counts} hidden; show them with --kind or -o json")


# The mark before a line, and its colour, by the kind of change.
_MARKS = {"removed": ("-", "red"), "added": ("+", "green"), "moved": (">", "cyan"), "changed": ("~", "bold")}
_PREVIEW = 60
# Comparing two texts takes milliseconds, so that ten thousand would take too long by default.
_MAX_TEXTS = 500


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
    a: Annotated[str, Argument(click_type=BOX, metavar="OLD", help="The old box.")],
    b: Annotated[str, Argument(click_type=BOX, metavar="NEW", help="The new box.")],
    full: Annotated[
        bool, Option("--full", help="Print complete texts, including the texts of added and removed cards.")
    ] = False,
) -> None:
    """Show added, removed, moved and changed cards. Exit 8 if the boxes differ.

    A card counts as changed if an edited version, or another card of its type and role, replaces it.

    -o id prints the cards that only the NEW box has.
    """
    with open_stores() as (_, boxes), boxes.database.snapshot():
        diff = boxes.diff(boxes.resolve(a), boxes.resolve(b))
        titles = [box_title(box, boxes) for box in (diff.a, diff.b)]
    changes = diff.changes
    if session().output == "jsonl":
        for change in changes:
            output.write(exact_json.encode(_diff_json(change)).decode())
    else:
        output.emit(
            # The patch takes time, and only documents contain it.
            _diff_answer(diff) if session().format.kind == "document" else None,
            table=lambda: _print_diff(diff, titles, full=full),
            ids=[change.b.card_id for change in changes if change.b and change.kind != "moved"],
        )
    if changes:
        numbers: Counter[str] = Counter(change.kind for change in changes)
        kinds = (kind for kind in ("added", "removed", "moved", "changed") if numbers[kind])
        raise Findings(f"the boxes differ: {', '.join(f'{numbers[kind]} {kind}' for kind in kinds)}")


# --- for programs


def _diff_answer(diff: "BoxDiff") -> dict[str, Any]:
    return {
        "a": _box_json(diff.a),
        "b": _box_json(diff.b),
        "equal": not diff.changes,
        "changes": [_diff_json(change) for change in diff.changes],
        "patch": diff.patch,
    }


def _box_json(box: Box) -> dict[str, Any]:
    return {"box_id": box.box_id, "title": box.title, "cards": len(box.card_ids)}


def _diff_json(change: "BoxChange") -> dict[str, Any]:
    return {"kind": change.kind, "a": _diff_place(change.a), "b": _diff_place(change.b)}


def _diff_place(slot: Slot | None) -> dict[str, Any] | None:
    from cardbox_cli.model.pairing import full_text

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


def _print_diff(diff: "BoxDiff", titles: Sequence[str | None], *, full: bool) -> None:
    if not diff.changes:
        return
    for mark, box, title in zip(("---", "+++"), (diff.a, diff.b), titles, strict=True):
        output.print_painted([("bold", flatten(f"{mark} {short_id(box.box_id)}  {title or ''}").rstrip())])
    rows = [_diff_cells(change) for change in diff.changes]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, (change, cells) in enumerate(zip(diff.changes, rows, strict=True)):
        mark, colour = _MARKS[change.kind]
        below = _text_below(change, full=full) if full or number < _MAX_TEXTS else []
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        first = _describe_card(change, compared=bool(below) and change.kind == "changed")
        output.print_painted([(colour, f"{mark} {line}  {first}".rstrip())])
        if below:
            output.print_painted(below)
    if len(rows) > _MAX_TEXTS and not full:
        announce(f"compared only the texts of the first {_MAX_TEXTS} differences; --full compares all")


def _diff_cells(change: "BoxChange") -> list[str]:
    slot = change.b or change.a
    assert slot is not None
    kind = [slot.card.type, slot.card.role or "-"] if slot.card else ["-", "-"]
    places = [str(each.position) for each in (change.a, change.b) if each]
    ids = [short_id(each.card_id) for each in (change.a, change.b) if each]
    return [flatten(cell) for cell in ("→".join(dict.fromkeys(places)), "→".join(dict.fromkeys(ids)), *kind)]


def _describe_card(change: "BoxChange", *, compared: bool) -> str:
    """Return the state and preview of a card, without the preview if its text follows."""
    from cardbox_cli.model.pairing import preview

    slot = change.b or change.a
    if slot is None or slot.card is None:
        return "(dangling: no such card)"
    state = "" if slot.state == "present" else f"({slot.state}) "
    return state if compared else f"{state}{preview(slot.card, _PREVIEW)}"


def _text_below(change: "BoxChange", *, full: bool) -> list[tuple[str, str]]:
    """Return the text below the line of a change, as (colour, text) pairs."""
    old, new = (slot.card if slot else None for slot in (change.a, change.b))
    if change.kind == "changed" and old and new:
        before, after = _diff_text(old), _diff_text(new)
        if before == after:
            return [("", f"{INDENT}(the same text: {_other_differences(old, new)})")]
        return compare_texts(before, after, full=full)
    card = new or old
    if card is None or change.kind == "moved" or not full:
        return []
    return [(_MARKS[change.kind][1], indent_below(_diff_text(card)))]


def _diff_text(card: "Card") -> str:
    """Return the text of a card, with JSON indented so that lines can be compared."""
    from cardbox_cli.model.cards import card_text
    from cardbox_cli.model.content import TextContent
    from cardbox_cli.model.pairing import full_text

    text = card_text(card.content)
    if isinstance(card.content, TextContent) or text[:1] not in ("{", "["):
        return full_text(card)
    return full_text(card).replace(text, msgspec.json.format(text, indent=2), 1)


def _other_differences(old: "Card", new: "Card") -> str:
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


@verb("verify", "cbx box verify 8b1f22c0 || echo 'not as it was packed'", reads=True)
def verify_box(box: shared_options.BoxId) -> None:
    """Check a box's references, tool calls and results, and the digest of its packing. Exit 8 on findings."""
    from cardbox_cli.model.boxes import verify

    with open_stores() as (_, boxes), boxes.database.snapshot():
        view = boxes.view(boxes.resolve(box))
        findings = verify(view, boxes.provenance(view.box.box_id))
    answer = {"box_id": view.box.box_id, "digest": view.digest, "findings": findings}

    def table() -> None:
        if findings:
            print_table(_VERIFY_COLUMNS, findings)
        else:
            output.print_text(f"box {view.box.box_id}: {len(view.slots)} cards, nothing found")

    output.emit(answer, table=table, ids=[view.box.box_id])
    if findings:
        raise Findings(f"{format_count(len(findings), 'finding')} in box {view.box.box_id}")


_VERIFY_COLUMNS = (
    Column("#", lambda finding: NOTHING if finding.position is None else str(finding.position), right=True),
    Column("FINDING", lambda finding: finding.kind),
    Column("DETAIL", lambda finding: finding.message),
)
