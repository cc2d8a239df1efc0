"""What `cbx box show` prints: a box, place by place, for people and for programs."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cardbox_cli.cli.commands.box.show.asked import Asked
from cardbox_cli.cli.commands.box.show.documents import json_lines, write_documents
from cardbox_cli.cli.commands.box.show.pages import Page, pages_of, print_in_full, print_pages
from cardbox_cli.cli.commands.box.show.reading import Look, look, wanted
from cardbox_cli.cli.parameters.options import MOST, ColumnNames, Interval, Watch
from cardbox_cli.cli.parameters.types import BOX
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns.cards import places
from cardbox_cli.cli.terminal.tables.shown import chosen
from cardbox_cli.cli.terminal.watch import between_looks, follow, keep_showing, printed_by
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.model.text.quantities import count
from cardbox_cli.providers.models import tokenizer_for

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore


@verb(
    "cbx box show 8b1f22c0",
    "cbx box show 8b1f22c0 --tail 5 --full",
    "cbx box show @last --watch",
    "cbx box show 8b1f22c0 --sort tokens:desc | head -20",
    "cbx box show 8b1f22c0 --model gpt-4o",
    "cbx box show 8b1f22c0 --columns '#,created,author,tool,preview'",
    "cbx pack --handover delegate --args task.yaml -o id | xargs cbx box show --why",
    pages=True,
    reads=True,
    simple=True,
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
    asked = Asked(
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
        elif session().output not in ("table", "wide"):
            _show_as_read(boxes, asked, write_documents, pause)
        elif full:
            _show_as_read(boxes, asked, print_in_full, pause)
        else:
            _show_pages(boxes, asked, pause)


def _show_pages(boxes: "BoxStore", asked: Asked, interval: float | None) -> None:
    """Print tables: their texts are held, so that nobody's reading holds the snapshot."""

    def read() -> tuple[list[str], list[Page]]:
        with boxes.database.snapshot():
            seen = look(boxes, asked)
            return seen.missing, pages_of(seen, asked)

    def show(known: tuple[list[str], list[Page]]) -> None:
        missing, pages = known
        _announce_missing(missing)
        print_pages(pages)
        _be_strict(asked, missing, sum(page.missing for page in pages))

    if interval is not None:
        keep_showing(read, show, interval=interval, end=True)
    show(read())


def _show_as_read(
    boxes: "BoxStore", asked: Asked, write_all: Callable[[Look, Asked], int], interval: float | None
) -> None:
    """Print what may be too long to hold while it is read. `write_all` answers how many cards are missing."""

    def write() -> None:
        with boxes.database.snapshot():
            seen = look(boxes, asked)
            _announce_missing(seen.missing)
            lost = write_all(seen, asked)
        _be_strict(asked, seen.missing, lost)

    if interval is not None:
        keep_showing(partial(printed_by, write), sys.stdout.write, interval=interval, end=True)
    write()


def _show_lines(boxes: "BoxStore", asked: Asked, interval: float | None) -> None:
    """Print cards as the database formats them, as they come."""

    def lines() -> list[str]:
        with boxes.database.snapshot():
            box_ids, _ = wanted(boxes, asked)
            return [line for box_id in box_ids for line in json_lines(boxes, box_id, asked, set())]

    if interval is not None:
        follow(lines, interval=interval)
    with boxes.database.snapshot():
        box_ids, missing = wanted(boxes, asked)
        _announce_missing(missing)
        lost = 0
        for box_id in box_ids:
            gone: set[str] = set()
            for line in json_lines(boxes, box_id, asked, gone):
                output.write(line)
            lost += len(gone)
    _be_strict(asked, missing, lost)


def _announce_missing(box_ids: Sequence[str]) -> None:
    for box_id in box_ids:
        announce(f"missing: no box {box_id!r}")


def _be_strict(asked: Asked, missing: Sequence[str], lost: int) -> None:
    if asked.strict and (missing or lost):
        raise NotFound(f"missing: {count(len(missing), 'box')} and {count(lost, 'card')}")
