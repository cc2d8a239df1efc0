"""`cbx box`: ordered lists of cards, the contexts that turns read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.parameters.inputs import confirm, parse_span, read_text
from cardbox_cli.cli.parameters.last import LAST
from cardbox_cli.cli.parameters.options import BoxId
from cardbox_cli.cli.parameters.worker_environment import own_output
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import BOX, BOX_DEFAULT, chosen
from cardbox_cli.cli.terminal.describe import box_title, count
from cardbox_cli.cli.terminal.lists import ColumnNames, Limit, Listing, show_list
from cardbox_cli.cli.terminal.watch import Interval, Watch, between_looks
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.errors import Findings, NotFound, UsageError
from cardbox_cli.model.boxes import Box
from cardbox_cli.model.verify import verify as findings_in

if TYPE_CHECKING:
    from cardbox_cli.store.cards import CardStore

app = noun(
    "Make, show, change and verify boxes of cards.",
    elsewhere={verb: f"{__name__}.{verb}" for verb in ("diff", "edit", "show")},
)

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
        session().made(box_id=box.box_id)
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
        if allow_dangling and typed != LAST:
            return typed
        raise


def _emit_box(box: Box) -> None:
    output.emit(box, table=lambda: output.say(box.box_id), ids=[box.box_id])


@app.command(
    "list",
    epilog=examples(
        "  cbx box list --limit 10\n"
        "  cbx box list -o id | head -1\n"
        "  cbx box list --since 2h --columns full-id,updated,title\n"
        "  cbx box list --watch"
    ),
)
def list_(
    limit: Limit = 50,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Changed at or after: RFC 3339, or 2h for two hours ago."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Last changed before: RFC 3339, or 30m for 30 minutes ago."),
    ] = None,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """List boxes, the last changed first."""
    from cardbox_cli.store.boxes import BoxFilter

    start, end = parse_span(since, until)
    where = BoxFilter(since=start, until=end)
    pause = between_looks(watch, interval)
    names = chosen(BOX, BOX_DEFAULT, columns)
    with session().stores() as (_, boxes):
        listing = Listing(
            read=lambda size: boxes.newest(where, limit=size),
            further=lambda last: boxes.further(where, last),
            limit=limit,
            columns={**BOX, "TITLE": lambda box: box_title(box, boxes) or ""},
            names=names,
            item_id=lambda box: box.box_id,
            empty=f"no such boxes in project {session().project_id!r}"
            if since or until
            else f"no boxes in project {session().project_id!r}",
        )
        show_list(listing, boxes.database, interval=pause)


@app.command(epilog=examples("  cbx box append 8b1f22c0 5f0c2a91"))
def append(box: BoxId, card_ids: CardIds = None, allow_dangling: AllowDangling = False) -> None:
    """Append cards to a box. Concurrent appends come one after the other; none is lost.

    Refused while a turn reads or writes the box. A worker's command appends to its turn's own output box, for
    as long as the worker has the turn.
    """
    if not card_ids:
        raise UsageError("there is nothing to append", hint="give card ids, or - to read them from stdin")
    with session().stores() as (cards, boxes), boxes.database.transaction():
        box_id = boxes.resolve(box)
        ids = _card_ids(cards, card_ids, allow_dangling)
        boxes.append(box_id, ids, allow_dangling=allow_dangling, fence=own_output(box_id))
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
        made = boxes.fork(boxes.resolve(box), title=title)
        session().made(box_id=made.box_id)
    _emit_box(made)


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
