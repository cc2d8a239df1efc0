"""What `cbx box edit` does: the list of a box as a text to reorder, and the box that the text makes."""

import json
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import Option

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.commands.box.members import told_of
from cardbox_cli.cli.commands.box.mended import tell_turns
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.confirmation import decline
from cardbox_cli.cli.options.editor import Edited, changed_meanwhile, edited, taken_from
from cardbox_cli.cli.options.input_files import source_name
from cardbox_cli.cli.options.shared_options import BoxId
from cardbox_cli.cli.options.value_types import FILE
from cardbox_cli.cli.project_database import open_stores
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import AmbiguousId, InvalidInput, NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Box, BoxView, Slot
from cardbox_cli.model.card_words import preview
from cardbox_cli.model.ids import hash_ids, short_id
from cardbox_cli.model.text.escaping import flat, printable
from cardbox_cli.model.text.quantities import count

if TYPE_CHECKING:
    from cardbox_cli.store.cards import CardStore


@verb(
    "edit",
    "cbx box edit 8b1f22c0",
    "cbx box edit 8b1f22c0 --in-place",
    "cbx box show 8b1f22c0 -o json | jq -r '.card_ids[1:][]' | cbx box edit 8b1f22c0 --file -",
)
def edit_box(
    box: BoxId,
    in_place: Annotated[
        bool, Option("--in-place", help="Change the box itself, if nobody else did meanwhile.")
    ] = False,
    file: Annotated[
        str | None,
        Option("--file", "-f", click_type=FILE, help="A file with the edited list; no editor. - for stdin."),
    ] = None,
) -> None:
    """Edit the list of a box in VISUAL or EDITOR, a line per card: reorder, delete or add lines.

    This makes a new box, whose parent is the old one.
    """
    with open_stores() as (_, boxes), boxes.database.snapshot():
        view = boxes.view(boxes.resolve(box))
        if in_place:
            boxes.check_replaceable(view.box.box_id)
    old = view.box
    with _new_list(view, file, in_place) as new:
        wanted = _parsed(new)
        is_new = [line.given for line in wanted] != old.card_ids
        made, news = _written(wanted, new, old, in_place) if wanted and is_new else (old, [])
    if is_new and not wanted:
        decline("the list is empty: nothing was done")
    if not is_new:
        announce(f"unchanged: {old.box_id}")
    output.emit(made, table=lambda: output.print_text(made.box_id), ids=[made.box_id])
    for note in news:
        announce(note)


class _Line(NamedTuple):
    """One line of the list: the id as it was typed, and where."""

    given: str
    place: str


@contextmanager
def _new_list(view: BoxView, file: str | None, in_place: bool) -> Iterator[Edited]:
    before = _list_text(view, in_place)
    if file is not None:
        yield Edited(taken_from(file, before), source_name(file))
        return
    # Without --in-place: after a conflict that would fail again, and a new box loses nothing.
    remedy = ["box", "edit", view.box.box_id, "--file"]
    with edited(before, name=short_id(view.box.box_id), suffix=".txt", remedy=remedy) as new:
        yield new


def _list_text(view: BoxView, in_place: bool) -> str:
    box = view.box
    effect = "The box itself is changed." if in_place else "This makes a new box; the old one stays as it is."
    title = f": {box.title}" if box.title else ""
    notes = [
        f"Box {box.box_id}{title}, {count(len(box.card_ids), 'card')}",
        f"{_HASH} {hash_ids(box.card_ids)}",
        "",
        "A line is a place of the box. Its first word is the card: an id, or 4 or more characters of",
        "its beginning or end; the rest of the line is for you. Move lines, delete them, add some.",
        f"{effect} If no line is left, nothing is done.",
    ]
    lines = [printable(flat(f"{_quoted(slot.card_id)}  {_described(slot)}")) for slot in view.slots]
    return "\n".join([*lines, "", *(flat(f"# {note}".rstrip()) for note in notes), ""])


_HASH = "ids_sha256"
_HASH_LINE = re.compile(rf"^# {_HASH} ([0-9a-f]{{64}})\s*$", re.MULTILINE)


def _described(slot: Slot) -> str:
    card = slot.card
    if card is None:
        return "(dangling: no such card)"
    state = "" if slot.state == "present" else f"({slot.state}) "
    return f"{card.type}  {card.role or '-'}  {state}{preview(card)}"


def _quoted(card_id: str) -> str:
    """An id as a line begins with it: as a JSON string where it is not one plain word."""
    plain = _PLAIN.fullmatch(card_id) and printable(card_id) == card_id
    return card_id if plain else json.dumps(card_id)


_PLAIN = re.compile(r"""[^\s#"]\S*""")


def _parsed(new: Edited) -> list[_Line]:
    """The lines that name a card. Raises InvalidInput naming the line."""
    lines = [
        _Line(_first_word(line.strip(), f"{new.source}:{number}"), f"{new.source}:{number}")
        for number, line in enumerate(new.text.split("\n"), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    for line in lines:
        _check_text(line)
    return lines


def _check_text(line: _Line) -> None:
    try:
        exact_json.check_storable(line.given)
    except exact_json.Unstorable as exc:
        message = f"{line.place}: the id {line.given!r} {exc}"
        raise InvalidInput(message, hint="no card has such an id") from exc


def _first_word(line: str, place: str) -> str:
    if not line.startswith('"'):
        return line.split()[0]
    try:
        value, _ = json.JSONDecoder().raw_decode(line)
    except json.JSONDecodeError as exc:
        raise InvalidInput(
            f"{place}:{exc.colno}: {exc.msg}", hint="an id in quotes is a JSON string"
        ) from exc
    return str(value)


def _written(wanted: Sequence[_Line], new: Edited, old: Box, in_place: bool) -> tuple[Box, list[str]]:
    """The box that the list makes, and what there is to say of it."""
    found = _HASH_LINE.search(new.text)
    read = found[1] if found else hash_ids(old.card_ids)
    with open_stores() as (cards, boxes), boxes.database.transaction():
        ids = _resolved(cards, wanted, set(old.card_ids))
        if in_place:
            before = boxes.lock(old.box_id)
            changed = boxes.rewrite(old, ids, if_ids=read)
            audit(boxes.database, "box edit", **told_of(before, changed))
            return changed, []
        made = boxes.derive(old, ids)
        remember_made(box_id=made.box_id)
        told = tell_turns(boxes.database, made.box_id, old.box_id, "box edit")
        return made, [*changed_meanwhile(boxes, old.box_id, read, made), *told]


def _resolved(cards: "CardStore", wanted: Sequence[_Line], held: Set[str]) -> list[str]:
    """The whole ids. Raises NotFound and AmbiguousId naming the line."""
    absent = set(cards.absent([line.given for line in wanted if line.given not in held]))
    return [_whole(cards, line) if line.given in absent else line.given for line in wanted]


def _whole(cards: "CardStore", line: _Line) -> str:
    try:
        return cards.resolve(line.given)
    except (NotFound, AmbiguousId) as exc:
        raise type(exc)(f"{line.place}: {exc.message}", hint=exc.hint, details=exc.details) from exc
