"""`cbx box create, append, replace, fork, edit` and `delete`."""

import json
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Argument, Option

from cardbox_cli.cli.actor import audit, own_output
from cardbox_cli.cli.last_ids import LAST, remember_made
from cardbox_cli.cli.options.confirmation import Yes, confirm, decline
from cardbox_cli.cli.options.input_files import read_text, source_name
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.options.value_types import BOX, CARD, FILE
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import AmbiguousId, InvalidInput, NotFound, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.model.ids import hash_ids, short_id
from cardbox_cli.text.escaping import escape_invisible, flatten
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.cli.options.editor import EditedText
    from cardbox_cli.model.boxes import Box, BoxView, Slot
    from cardbox_cli.store.cards import CardStore


CardIds = Annotated[
    list[str] | None,
    Argument(click_type=CARD, help="Card ids, in order; - reads them from stdin, one per line."),
]
AllowDangling = Annotated[bool, Option("--allow-dangling", help="Accept ids of cards that do not exist.")]


def _read_card_ids(cards: "CardStore", given: Sequence[str] | None, allow_dangling: bool) -> list[str]:
    ids: list[str] = []
    for text in given or []:
        if text == "-":
            ids += [line.strip() for line in read_text("-").splitlines() if line.strip()]
        else:
            ids.append(text)
    absent = set(cards.missing_ids(ids))
    return [
        card_id if card_id not in absent else _resolve_card(cards, card_id, allow_dangling) for card_id in ids
    ]


def _resolve_card(cards: "CardStore", given: str, allow_dangling: bool) -> str:
    try:
        return cards.resolve(given)
    except NotFound:
        if allow_dangling and given != LAST:
            return given
        raise


def _emit_box(box: "Box") -> None:
    output.emit(box, table=lambda: output.print_text(box.box_id), ids=[box.box_id])


def _audit_detail(box: "Box", changed: "Box | None" = None) -> dict[str, Any]:
    """Return the audit details of a box before and after a change: hashes, as the ids may be many."""
    before = {"box_id": box.box_id, "cards": len(box.card_ids), "ids_sha256": hash_ids(box.card_ids)}
    if changed is None:
        return before
    after = {"cards": len(changed.card_ids), "ids_sha256": hash_ids(changed.card_ids)}
    return {**before, "after": after}


@verb(
    "create",
    "cbx box create",
    "cbx card list --type task.instruction -o id | cbx box create - --title orders",
)
def create_box(
    card_ids: CardIds = None,
    title: Annotated[str | None, Option(metavar="TEXT", help="A title.")] = None,
    parent: Annotated[
        list[str] | None, Option(click_type=BOX, help="A parent box of the new box. Repeatable.")
    ] = None,
    allow_dangling: AllowDangling = False,
) -> None:
    """Create a box of cards, in the given order."""
    with open_stores() as (cards, boxes), boxes.database.transaction():
        ids = _read_card_ids(cards, card_ids, allow_dangling)
        parents = [boxes.get(boxes.resolve(given)).box_id for given in parent or []]
        box = boxes.create(ids, parent_ids=parents, title=title, allow_dangling=allow_dangling)
        remember_made(box_id=box.box_id)
    _emit_box(box)


@verb("append", "cbx box append 8b1f22c0 5f0c2a91")
def append_cards(box: BoxId, card_ids: CardIds = None, allow_dangling: AllowDangling = False) -> None:
    """Append cards to a box. Concurrent appends run one after the other, so no card is lost.

    Refuses a box that a turn reads or writes. A worker's command may append to the output box of its turn
    while the worker holds the turn.
    """
    if not card_ids:
        raise UsageError("no cards to append", hint="pass card ids, or - to read them from stdin")
    with open_stores() as (cards, boxes), boxes.database.transaction():
        box_id = boxes.resolve(box)
        ids = _read_card_ids(cards, card_ids, allow_dangling)
        boxes.append(box_id, ids, allow_dangling=allow_dangling, fence=own_output(box_id))
        changed = boxes.get(box_id)
    _emit_box(changed)


@verb(
    "replace",
    "cbx box replace 8b1f22c0 5f0c2a91 77ab01de",
    "cbx box replace 8b1f22c0 5f0c2a91 --if-ids $(cbx box show 8b1f22c0 -o json | jq -r .ids_sha256)",
)
def replace_card(
    box: BoxId,
    card_ids: CardIds = None,
    if_ids: Annotated[
        str | None,
        Option(
            metavar="HASH", help="Fail unless the box still has this hash: ids_sha256 of `box show -o json`."
        ),
    ] = None,
    allow_dangling: AllowDangling = False,
) -> None:
    """Set the cards of a box. Without card ids, the box becomes empty."""
    with open_stores() as (cards, boxes), boxes.database.transaction():
        ids = _read_card_ids(cards, card_ids, allow_dangling)
        old = boxes.lock(boxes.resolve(box))
        changed = boxes.replace(old.box_id, ids, if_ids=if_ids, allow_dangling=allow_dangling)
        if changed.card_ids != old.card_ids:
            audit(boxes.database, "box replace", **_audit_detail(old, changed))
    _emit_box(changed)


@verb("fork", "cbx box fork 8b1f22c0 --title 'what if'")
def fork_box(
    box: BoxId,
    title: Annotated[
        str | None, Option(metavar="TEXT", help="A title. Default: the old box's title.")
    ] = None,
) -> None:
    """Copy a box. The new box has the same cards, and the old box as its parent."""
    with open_stores() as (_, boxes):
        fork = boxes.fork(boxes.resolve(box), title=title)
        remember_made(box_id=fork.box_id)
    _emit_box(fork)


@verb("delete", "cbx box delete 8b1f22c0 --yes")
def delete_box(
    box: BoxId,
    yes: Yes = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print what would be deleted.")] = False,
) -> None:
    """Delete a box. Its cards stay."""
    with open_stores() as (_, boxes):
        old = boxes.get(boxes.resolve(box))
        if not dry_run:
            confirm(f"Delete box {old.box_id} ({format_count(len(old.card_ids), 'card')})?", yes=yes)
            with boxes.database.transaction():
                audit(boxes.database, "box delete", **_audit_detail(boxes.lock(old.box_id)))
                boxes.delete(old.box_id)
    verb = "would delete" if dry_run else "deleted"
    answer = {"deleted_box_id": old.box_id, "dry_run": dry_run}
    output.emit(answer, table=lambda: output.print_text(f"{verb} {old.box_id}"), ids=[old.box_id])


@verb(
    "edit",
    "cbx box edit 8b1f22c0",
    "cbx box edit 8b1f22c0 --in-place",
    "cbx box show 8b1f22c0 -o json | jq -r '.card_ids[1:][]' | cbx box edit 8b1f22c0 --file -",
)
def edit_box(
    box: BoxId,
    in_place: Annotated[
        bool, Option("--in-place", help="Change the box in place, unless it has changed meanwhile.")
    ] = False,
    file: Annotated[
        str | None,
        Option(
            "--file",
            "-f",
            click_type=FILE,
            help="A file with the edited list, instead of the editor; - for stdin.",
        ),
    ] = None,
) -> None:
    """Edit a box's list of cards in VISUAL or EDITOR: reorder, delete or add lines, one per card.

    This creates a new box with the old box as its parent.
    """
    with open_stores() as (_, boxes), boxes.database.snapshot():
        view = boxes.view(boxes.resolve(box))
        if in_place:
            boxes.check_replaceable(view.box.box_id)
    old = view.box
    with _new_list(view, file, in_place) as new:
        lines = _parse_lines(new)
        is_new = [line.given for line in lines] != old.card_ids
        edited, notes = _write_box(lines, new, old, in_place) if lines and is_new else (old, [])
    if is_new and not lines:
        decline("canceled: the list is empty")
    if not is_new:
        announce(f"unchanged: {old.box_id}")
    _emit_box(edited)
    for note in notes:
        announce(note)


class _Line(NamedTuple):
    """A line of the list: the id as typed, and its file and line number."""

    given: str
    place: str


@contextmanager
def _new_list(view: "BoxView", file: str | None, in_place: bool) -> "Iterator[EditedText]":
    from cardbox_cli.cli.options.editor import EditedText, edit_text, read_edited

    before = _list_text(view, in_place)
    if file is not None:
        yield EditedText(read_edited(file, before), source_name(file))
        return
    # Without --in-place, which would fail again after a conflict.
    remedy = ["box", "edit", view.box.box_id, "--file"]
    with edit_text(before, name=short_id(view.box.box_id), suffix=".txt", remedy=remedy) as new:
        yield new


def _list_text(view: "BoxView", in_place: bool) -> str:
    box = view.box
    effect = (
        "This changes the box itself." if in_place else "This creates a new box; the old one does not change."
    )
    title = f": {box.title}" if box.title else ""
    notes = [
        f"Box {box.box_id}{title}, {format_count(len(box.card_ids), 'card')}",
        f"ids_sha256 {hash_ids(box.card_ids)}",
        "",
        "Each line is a card of the box. Its first word is the id, or 4 or more characters of the",
        "beginning or end; the rest of the line is a comment. Move, delete or add lines.",
        f"{effect} An empty list cancels.",
    ]
    lines = [
        escape_invisible(flatten(f"{_quote_id(slot.card_id)}  {_describe_slot(slot)}")) for slot in view.slots
    ]
    return "\n".join([*lines, "", *(flatten(f"# {note}".rstrip()) for note in notes), ""])


_HASH_LINE = re.compile(r"^# ids_sha256 ([0-9a-f]{64})\s*$", re.MULTILINE)


def _describe_slot(slot: "Slot") -> str:
    from cardbox_cli.model.pairing import preview

    card = slot.card
    if card is None:
        return "(dangling: no such card)"
    state = "" if slot.state == "present" else f"({slot.state}) "
    return f"{card.type}  {card.role or '-'}  {state}{preview(card)}"


def _quote_id(card_id: str) -> str:
    """Return the id, as a JSON string unless it is a plain word."""
    is_plain = _PLAIN.fullmatch(card_id) and escape_invisible(card_id) == card_id
    return card_id if is_plain else json.dumps(card_id)


_PLAIN = re.compile(r"""[^\s#"]\S*""")


def _parse_lines(new: "EditedText") -> list[_Line]:
    """Return the lines that name a card. Raises InvalidInput naming the line."""
    lines = [
        _Line(_first_word(line.strip(), f"{new.source}:{number}"), f"{new.source}:{number}")
        for number, line in enumerate(new.text.split("\n"), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    for line in lines:
        try:
            exact_json.check_storable(line.given)
        except exact_json.Unstorable as exc:
            message = f"{line.place}: the id {line.given!r} {exc}"
            raise InvalidInput(message, hint="no card can have this id: remove the line") from exc
    return lines


def _first_word(line: str, place: str) -> str:
    if not line.startswith('"'):
        return line.split()[0]
    try:
        value, _ = json.JSONDecoder().raw_decode(line)
    except json.JSONDecodeError as exc:
        raise InvalidInput(
            f"{place}:{exc.colno}: {exc.msg}", hint="a quoted id must be a JSON string"
        ) from exc
    return str(value)


def _write_box(
    lines: Sequence[_Line], new: "EditedText", old: "Box", in_place: bool
) -> "tuple[Box, list[str]]":
    """Write the box of the list; return it with notes for the person."""
    from cardbox_cli.cli.commands.box.box_repair import rebox_hints
    from cardbox_cli.cli.options.editor import box_change_notes

    match = _HASH_LINE.search(new.text)
    read_hash = match[1] if match else hash_ids(old.card_ids)
    with open_stores() as (cards, boxes), boxes.database.transaction():
        ids = _resolve_lines(cards, lines, set(old.card_ids))
        if in_place:
            before = boxes.lock(old.box_id)
            changed = boxes.rewrite(old, ids, if_ids=read_hash)
            audit(boxes.database, "box edit", **_audit_detail(before, changed))
            return changed, []
        made = boxes.derive(old, ids)
        remember_made(box_id=made.box_id)
        hints = rebox_hints(boxes.database, made.box_id, old.box_id, "box edit")
        return made, [*box_change_notes(boxes, old.box_id, read_hash, made), *hints]


def _resolve_lines(cards: "CardStore", lines: Sequence[_Line], old_ids: Set[str]) -> list[str]:
    """Return the full ids. Raises NotFound and AmbiguousId naming the line."""
    absent = set(cards.missing_ids([line.given for line in lines if line.given not in old_ids]))
    return [_resolve_line(cards, line) if line.given in absent else line.given for line in lines]


def _resolve_line(cards: "CardStore", line: _Line) -> str:
    try:
        return cards.resolve(line.given)
    except (NotFound, AmbiguousId) as exc:
        raise type(exc)(f"{line.place}: {exc.message}", hint=exc.hint, details=exc.details) from exc
