"""`cbx box repair`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.commands.box.mended import emit_mended, tell_turns
from cardbox_cli.cli.parameters.options import BoxId
from cardbox_cli.cli.parameters.types import BOX, PROVIDER
from cardbox_cli.cli.parameters.worker_environment import own_turn
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal.reports.findings import tell
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Findings, UsageError
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.ids import unique
from cardbox_cli.providers.registry import provider_named, providers


@verb(
    "cbx box repair 8b1f22c0 --synthesize",
    "cbx box repair 8b1f22c0 --for anthropic --drop-orphans --dry-run",
    "cbx box repair $OUTPUT --after $CONTEXT --synthesize -o id",
    reads="dry_run",
)
def command(
    box: BoxId,
    synthesize: Annotated[
        bool | None,
        Option(
            "--synthesize/--drop-orphans",
            help="Write what lacks: for a call without a result one that says interrupted. Or drop what "
            "lacks something.",
        ),
    ] = None,
    for_: Annotated[
        list[str] | None,
        Option("--for", click_type=PROVIDER, help="By whose rules. Repeatable. Default: by all of them."),
    ] = None,
    after: Annotated[
        list[str] | None,
        Option("--after", click_type=BOX, help="A box that stands before it in the request. Repeatable."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the changes, write nothing.")] = False,
) -> None:
    """Make a new box that providers do not refuse. The old one stays, and so do its cards.

    What the lint finds is mended where that can be: results move to their calls, arguments become JSON;
    else the card loses its imported original, or its place. Calls that an active turn waits for stay open.
    Exit 8, and nothing written, where an error is left that is about no card of the box.
    """
    from cardbox_cli.box_repair import repair_box
    from cardbox_cli.cli.id_resolution.boxes import ResolvingBoxes

    if synthesize is None:
        raise UsageError(
            "--synthesize or --drop-orphans is missing",
            hint="the first writes results for calls that have none, the second drops such calls",
        )
    wanted = [provider_named(name) for name in unique(for_ or [])] or list(providers())
    with session().database() as database:
        boxes = ResolvingBoxes(database, session().project_id)
        box_id = boxes.resolve(box)
        before = [boxes.resolve(each) for each in after or []]
        if box_id in before:
            raise UsageError(f"--after: box {box_id} is the one that is repaired", hint="name another")
        for each in before:
            boxes.require(each)
        mended, left = repair_box(
            database,
            session().project_id,
            box_id,
            providers=wanted,
            synthesizes=synthesize,
            before=before,
            author_id=OPERATOR,
            turn=own_turn(),
            dry_run=dry_run,
        )
        notes = tell_turns(database, mended.box_id, mended.from_box_id, "box repair")
        if mended.changes and mended.box_id is not None:
            session().made(box_id=mended.box_id)
    if left:
        tell(left)
        rules = ", ".join(unique(found.rule for found in left))
        raise Findings(
            f"box {box_id} has errors that are about no card of it: {rules}",
            hint="nothing was written; "
            + ("mend what is told above" if synthesize else "mend what is told above, or try --synthesize"),
        )
    emit_mended(mended, dry_run=dry_run)
    for note in notes:
        announce(note)
