"""`cbx box show`: the cards of boxes, for people and programs. A large box is never held in memory."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.last_ids import resolved_or_given
from cardbox_cli.cli.options.shared_options import MAX_COUNT, Interval, Watch, column_option
from cardbox_cli.cli.options.value_types import BOX
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import BoxPlace, place_columns, short_rule
from cardbox_cli.cli.terminal.output import Members, whole
from cardbox_cli.cli.terminal.table_layout import NOTHING, Rows, Shown, choose_columns, print_rows, rows_of
from cardbox_cli.cli.terminal.watch import follow, keep_showing, poll_interval, printed_by
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.model.boxes import Box, Digest, Provenance, Slot
from cardbox_cli.model.ids import hash_ids, unique
from cardbox_cli.model.pairing import ToolNames, full_text
from cardbox_cli.model.tokens import card_tokens
from cardbox_cli.providers.models import tokenizer_for
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.escaping import flatten, indent_lines
from cardbox_cli.text.quantities import format_count, format_tokens
from cardbox_cli.text.times import format_time

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore


_AnyPlace = TypeVar("_AnyPlace")


class BoxSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the boxes to show, and its form. `columns` are those of the table."""

    box_ids: list[str]
    full: bool
    types: frozenset[str] | None
    head: int | None
    tail: int | None
    why: bool
    strict: bool
    columns: Shown
    model: str | None

    def window(self, cards: int) -> range | None:
        """Return the positions to show; None for all, or if the cards' types decide."""
        if self.types is not None or (self.head is None and self.tail is None):
            return None
        return range(cards)[: self.head] if self.tail is None else range(max(cards - self.tail, 0), cards)

    def cut(self, places: Iterable[_AnyPlace]) -> Iterator[_AnyPlace]:
        """Return the first or last places, as selected."""
        return islice(places, self.head) if self.tail is None else iter(deque(places, self.tail))


# --- reading


class Totals:
    """Tokens, digest and missing cards of the places that were read."""

    def __init__(self, selection: BoxSelection) -> None:
        self.digest = Digest()
        self.tokens = 0
        # The ids without a visible card, each once, in box order.
        self.missing: dict[str, None] = {}
        self._tokenizer = tokenizer_for(selection.model)

    def add(self, slot: Slot) -> None:
        self.digest.add(slot.card)
        if slot.card is None or slot.state != "present":
            self.missing[slot.card_id] = None
        else:
            self.tokens += card_tokens(slot.card, self._tokenizer)


class BoxReading(NamedTuple):
    """One box. `slots` reads its places: all of them, or those of a window of positions."""

    box: Box
    provenance: Provenance | None
    selection: BoxSelection
    slots: Callable[[range | None], Iterable[Slot]]

    def window(self) -> range | None:
        """Return the positions to show; None if all must be read to decide or to count."""
        # The tool of a result is named by its call, anywhere in the box.
        names_tools = any(column.name == "TOOL" for column in self.selection.columns.columns)
        return None if self.selection.strict or names_tools else self.selection.window(len(self.box.card_ids))

    def places(self, totals: Totals, *, whole: bool) -> Iterator[BoxPlace]:
        """Yield the places to show, each with its rule and tool, and count all that are read in `totals`.

        `whole` reads all others, too.
        """
        tools, types = ToolNames(), self.selection.types

        def read() -> Iterator[BoxPlace]:
            for slot in self.slots(None if whole else self.window()):
                totals.add(slot)
                tool = None if slot.card is None else tools.tool_names(slot.card)
                if types is None or (slot.card is not None and slot.card.type in types):
                    yield BoxPlace(slot, self._rule(slot), tool or NOTHING)

        reading = read()
        if not whole and self.window() is not None:
            yield from reading
            return
        yield from self.selection.cut(reading)
        # Count the places after the first N, too.
        for _ in reading:
            pass

    def _rule(self, slot: Slot) -> str:
        if self.provenance is None:
            return "unknown"
        return short_rule(self.provenance.rule_of(slot.position) or "appended later")


class BoxReadings(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes as read at one time. `titles` is False if the database does not store titles."""

    readings: list[BoxReading]
    missing: list[str]
    titles: bool


def find_box_ids(boxes: "BoxStore", selection: BoxSelection) -> tuple[list[str], list[str]]:
    """Return the ids of existing boxes and of missing ones. Raises NotFound if the only one is missing."""
    if len(selection.box_ids) == 1:
        box_id = boxes.resolve(selection.box_ids[0])
        boxes.require(box_id)
        return [box_id], []
    ids = unique(resolved_or_given(boxes.resolve, given) for given in selection.box_ids)
    existing = boxes.filter_existing(ids)
    return [each for each in ids if each in existing], [each for each in ids if each not in existing]


def read_boxes(boxes: "BoxStore", selection: BoxSelection) -> BoxReadings:
    """Return the boxes within the caller's snapshot, which must stay open until all is read."""
    box_ids, missing = find_box_ids(boxes, selection)
    readings = [
        BoxReading(
            box,
            boxes.provenance(box.box_id) if selection.why else None,
            selection,
            partial(boxes.stream, box.box_id),
        )
        for box in boxes.get_many(box_ids).boxes
    ]
    return BoxReadings(readings=readings, missing=missing, titles=boxes.database.keeps_box_info)


# --- for programs


def write_documents(snapshot: BoxReadings, selection: BoxSelection) -> int:
    """Write the format for programs while reading; return the number of missing cards."""
    if session().format.delimiter is not None:
        return _write_rows(snapshot, selection)
    totals = [Totals(selection) for _ in snapshot.readings]
    if session().output == "id":
        for reading, total in zip(snapshot.readings, totals, strict=True):
            output.write_id(reading.box.box_id)
            if selection.strict:
                list(reading.places(total, whole=True))
    else:
        output.emit_members(_members(snapshot, selection, totals))
    return sum(len(each.missing) for each in totals)


def json_lines(boxes: "BoxStore", box_id: str, selection: BoxSelection, lost: set[str]) -> Iterator[str]:
    """Yield the JSON of each card to show; `lost` collects the ids of the others."""
    cards = boxes.length(box_id) if selection.types is None else 0
    window = None if selection.strict else selection.window(cards)

    def places() -> Iterator[str | None]:
        for card_id, text in boxes.json_lines(box_id, selection.types, window):
            if text is None:
                lost.add(card_id)
            if text is not None or selection.types is None:
                yield text

    shown = places() if window is not None else selection.cut(places())
    return (text for text in shown if text is not None)


def _write_rows(snapshot: BoxReadings, selection: BoxSelection) -> int:
    totals = Totals(selection)
    places = (place for reading in snapshot.readings for place in reading.places(totals, whole=False))
    output.write_rows(selection.columns.columns, selection.columns.arranged(places))
    return len(totals.missing)


def _members(snapshot: BoxReadings, selection: BoxSelection, totals: list[Totals]) -> Members:
    if len(selection.box_ids) == 1:
        yield from _box_members(snapshot.readings[0], totals[0])
    else:
        yield "boxes", (whole(_box_members(*each)) for each in zip(snapshot.readings, totals, strict=True))
        yield "missing_box_ids", snapshot.missing


def _box_members(reading: BoxReading, totals: Totals) -> Members:
    box, provenance, selection = reading.box, reading.provenance, reading.selection
    yield "box_id", box.box_id
    yield "project_id", box.project_id
    yield "title", box.title
    yield "card_ids", box.card_ids
    slots = (place.slot for place in reading.places(totals, whole=True))
    yield "cards", (slot.card for slot in slots if slot.card is not None and slot.state == "present")
    # The totals are complete now, because the cards have been read.
    yield "parent_ids", box.parent_ids
    yield "missing_card_ids", list(totals.missing)
    yield "digest", totals.digest.hexdigest()
    yield "ids_sha256", hash_ids(box.card_ids)
    yield "updated_at", box.updated_at
    if selection.model is not None:
        tokenizer = tokenizer_for(selection.model)
        yield "tokens", totals.tokens
        yield "tokens_exact", tokenizer.exact
        yield "tokenizer", tokenizer.name
    if selection.why:
        recipe = provenance and {"name": provenance.recipe, "digest": provenance.recipe_digest}
        yield "recipe", recipe
        rules = [
            {"position": position, "card_id": card_id, "rule": provenance and provenance.rule_of(position)}
            for position, card_id in enumerate(box.card_ids)
        ]
        yield "rules", rules


# --- for people


Facts = tuple[tuple[str, str | None], ...]


class BoxPage(msgspec.Struct, frozen=True):
    """A box for people: facts, the rows of its table, and the number of missing cards."""

    facts: Facts
    rows: Rows
    missing: int


def print_in_full(snapshot: BoxReadings, selection: BoxSelection) -> int:
    """Print complete texts as they are read; return the number of missing cards."""
    missing = 0
    for number, reading in enumerate(snapshot.readings):
        totals, shown = Totals(selection), Totals(selection)
        # The totals are printed first, so the places are read twice, and never held.
        places = sum(1 for _ in reading.places(totals, whole=reading.window() is None))
        _print_facts(number, _box_facts(reading, snapshot, totals, places))
        if places:
            output.print_text()
        for place in reading.places(shown, whole=False):
            _print_place(place, with_rule=reading.provenance is not None)
        missing += len(totals.missing)
    return missing


def _box_page(reading: BoxReading, snapshot: BoxReadings) -> BoxPage:
    columns, totals = reading.selection.columns, Totals(reading.selection)
    places = reading.places(totals, whole=reading.window() is None)
    rows = rows_of(columns.columns, columns.arranged(places))
    facts = _box_facts(reading, snapshot, totals, len(rows.cells))
    return BoxPage(facts, rows, len(totals.missing))


def _box_facts(reading: BoxReading, snapshot: BoxReadings, totals: Totals, shown: int) -> Facts:
    """Return the facts of a box. If only a part was read: no digest, and the tokens of that part."""
    box, provenance = reading.box, reading.provenance
    whole = reading.window() is None
    tokens = format_tokens(totals.tokens, exact=tokenizer_for(reading.selection.model).exact)
    cards = len(box.card_ids)
    return (
        ("box", box.box_id),
        ("title", box.title if snapshot.titles else "unknown"),
        ("cards", f"{cards}{'' if whole else f'; {shown} of them shown'}, {tokens} tokens"),
        ("parents", ", ".join(box.parent_ids) or None),
        ("packed by", None if provenance is None else f"recipe {provenance.recipe}"),
        ("updated", format_time(box.updated_at)),
        ("digest", totals.digest.hexdigest() if whole else None),
    )


def _print_facts(number: int, facts: Facts) -> None:
    if number:
        output.print_text()
    output.facts(*facts)


def _print_place(place: BoxPlace, *, with_rule: bool) -> None:
    slot, card = place.slot, place.slot.card
    rule = f"  by {place.rule}" if with_rule else ""
    kind = f"{card.type}  {card.role or '-'}" if card else "(dangling: no such card)"
    state = f"  ({slot.state})" if card and slot.state != "present" else ""
    output.print_text(flatten(f"── {slot.position}  {slot.card_id}  {kind}{state}{rule}"))
    if card is not None:
        output.print_text(indent_lines(full_text(card)))
    output.print_text()


@verb(
    "show",
    "cbx box show 8b1f22c0",
    "cbx box show 8b1f22c0 --tail 5 --full",
    "cbx box show @last --watch",
    "cbx box show 8b1f22c0 --sort tokens:desc | head -20",
    "cbx box show 8b1f22c0 --model gpt-4o",
    "cbx box show 8b1f22c0 --columns '#,created,author,tool,preview'",
    "cbx pack --handover delegate --args task.yaml -o id | xargs cbx box show --why",
    pages=True,
    reads=True,
)
def show_box(
    box_ids: Annotated[
        list[str],
        Argument(click_type=BOX, help="Full ids, or unique parts at their start or end, or @last."),
    ],
    full: Annotated[bool, Option("--full", help="Complete texts instead of previews.")] = False,
    types: Annotated[str | None, Option(metavar="TYPE,…", help="Only cards of these types.")] = None,
    head: Annotated[
        int | None, Option(metavar="N", min=0, max=MAX_COUNT, help="Only the first N cards.")
    ] = None,
    tail: Annotated[
        int | None, Option(metavar="N", min=0, max=MAX_COUNT, help="Only the last N cards.")
    ] = None,
    why: Annotated[bool, Option("--why", help="Show the recipe rule that added each card.")] = False,
    strict: Annotated[bool, Option("--strict", help="Fail if a card or box is missing.")] = False,
    model: Annotated[
        str | None, Option(metavar="MODEL", help="Count tokens for this model. Default: an estimate.")
    ] = None,
    column_names: Annotated[str | None, column_option("type,tokens,preview")] = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """Show the cards of a box, in order. -o jsonl prints one card per line."""
    if full and column_names is not None:
        raise UsageError(conflict_message("--full", "--columns"), hint="remove one of them")
    if head is not None and tail is not None:
        raise UsageError(conflict_message("--head", "--tail"), hint="remove one of them")
    if session().sort is not None and not session().format.has_columns:
        raise UsageError(conflict_message("--sort", f"-o {session().output}"), hint="remove --sort")
    shown = choose_columns(place_columns(tokenizer_for(model), with_rule=why), column_names)
    selection = BoxSelection(
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
    pause = poll_interval(watch, interval)
    with open_stores() as (_, boxes):
        if session().output == "jsonl":
            _show_lines(boxes, selection, pause)
        elif session().output not in ("table", "wide"):
            _show_as_read(boxes, selection, write_documents, pause)
        elif full:
            _show_as_read(boxes, selection, print_in_full, pause)
        else:
            _show_pages(boxes, selection, pause)


def _show_pages(boxes: "BoxStore", selection: BoxSelection, interval: float | None) -> None:
    """Print tables. Their texts are held, so that a slow reader does not hold the snapshot open."""

    def read() -> tuple[list[str], list[BoxPage]]:
        with boxes.database.snapshot():
            snapshot = read_boxes(boxes, selection)
            return snapshot.missing, [_box_page(reading, snapshot) for reading in snapshot.readings]

    def show(result: tuple[list[str], list[BoxPage]]) -> None:
        missing, pages = result
        _announce_missing(missing)
        for number, page in enumerate(pages):
            _print_facts(number, page.facts)
            if page.rows.cells:
                output.print_text()
                print_rows(page.rows)
        _check_missing(selection, missing, sum(page.missing for page in pages))

    if interval is not None:
        keep_showing(read, show, interval=interval, end=True)
    show(read())


def _show_as_read(
    boxes: "BoxStore",
    selection: BoxSelection,
    write_all: Callable[[BoxReadings, BoxSelection], int],
    interval: float | None,
) -> None:
    """Print while reading, for answers too long to hold. `write_all` returns the number of missing cards."""

    def write() -> None:
        with boxes.database.snapshot():
            snapshot = read_boxes(boxes, selection)
            _announce_missing(snapshot.missing)
            lost = write_all(snapshot, selection)
        _check_missing(selection, snapshot.missing, lost)

    if interval is not None:
        keep_showing(partial(printed_by, write), sys.stdout.write, interval=interval, end=True)
    write()


def _show_lines(boxes: "BoxStore", selection: BoxSelection, interval: float | None) -> None:
    """Print cards as the database formats them, while reading."""

    def lines() -> list[str]:
        with boxes.database.snapshot():
            box_ids, _ = find_box_ids(boxes, selection)
            return [line for box_id in box_ids for line in json_lines(boxes, box_id, selection, set())]

    if interval is not None:
        follow(lines, interval=interval)
    with boxes.database.snapshot():
        box_ids, missing = find_box_ids(boxes, selection)
        _announce_missing(missing)
        lost = 0
        for box_id in box_ids:
            lost_ids: set[str] = set()
            for line in json_lines(boxes, box_id, selection, lost_ids):
                output.write(line)
            lost += len(lost_ids)
    _check_missing(selection, missing, lost)


def _announce_missing(box_ids: Sequence[str]) -> None:
    for box_id in box_ids:
        announce(f"missing: no box {box_id!r}")


def _check_missing(selection: BoxSelection, missing: Sequence[str], lost: int) -> None:
    if selection.strict and (missing or lost):
        raise NotFound(f"missing: {format_count(len(missing), 'box')} and {format_count(lost, 'card')}")
