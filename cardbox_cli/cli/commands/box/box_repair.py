"""`cbx box repair, compress` and `expand`: each creates a new box, and names the turns of the old one."""

from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.actor import own_turn, refuse_inside_turn
from cardbox_cli.cli.last_ids import remember_made, resolving_boxes
from cardbox_cli.cli.options import compose_options, model_program
from cardbox_cli.cli.options.input_files import text_or_file
from cardbox_cli.cli.options.model_program import check_command
from cardbox_cli.cli.options.shared_options import MAX_COUNT, BoxId
from cardbox_cli.cli.options.value_types import BOX, PROVIDER, Seconds
from cardbox_cli.cli.project_database import database_target, open_database, open_stores
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, print_below
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Findings, ServiceUnavailable, UsageError
from cardbox_cli.limits import RESULT_SIZE
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.text.command_lines import command_line
from cardbox_cli.text.error_messages import conflict_message, required_message
from cardbox_cli.text.escaping import indent_margin
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.box_repair import ActiveUser, CoveredBox, MaxTokens, RepairedBox
    from cardbox_cli.execution.worker.command_processes import CommandOutcome
    from cardbox_cli.store.connection.database import Database


def _emit_repaired_box(
    mended: "RepairedBox",
    notes: Sequence[str] = (),
    *,
    dry_run: bool,
    facts: Sequence[tuple[str, str | None]] = (),
) -> None:
    """Print the new box, its changes and notes; with -o id, the id of the box to use now."""
    if not mended.changes:
        announce(f"unchanged: {mended.from_box_id}")

    def table() -> None:
        output.facts(
            ("box", "(dry run: nothing was written)" if dry_run and mended.changes else mended.box_id),
            ("from", mended.from_box_id),
            *facts,
        )
        print_below(_CHANGE_COLUMNS, mended.changes)

    output.emit(mended, table=table, ids=[mended.box_id] if mended.box_id else [])
    for note in notes:
        announce(note)


def rebox_hints(database: "Database", box_id: str | None, from_box_id: str, reason: str) -> list[str]:
    """Return a note for each active turn that uses the old box or an ancestor: the command that switches it.

    Empty after a dry run (`box_id` is None), or if no box was created.
    """
    from cardbox_cli.box_repair import active_users, find_ancestors

    if box_id in (None, from_box_id):
        return []
    lineage = find_ancestors(database, session().project_id, from_box_id)
    return [
        f"note: {origin} the {user.use} box of turn {user.agent_turn_id}"
        + (
            f"; to switch to the new box: {_rebox_command(user, box_id, reason)}"
            if user.waits
            else _IS_RUNNING
        )
        for origin, box_ids in (("the old box is", lineage[:1]), ("the old box comes from", lineage[1:]))
        for user in active_users(database, session().project_id, box_ids)
        if user.use in ("context", "output")
    ]


_IS_RUNNING = ", which is running; reclaim the turn first with `cbx turn reclaim`"


def _rebox_command(user: "ActiveUser", box_id: str | None, reason: str) -> str:
    box = (f"--{user.use}-box", box_id or "")
    words = ("--expect-epoch", str(user.turn_epoch), *box, "--reason", reason)
    return f"`{command_line(('turn', 'rebox', user.agent_turn_id), *words)}`"


_CHANGE_COLUMNS = (
    Column("#", lambda change: NOTHING if change.position is None else str(change.position), right=True),
    Column("CARD", lambda change: short_id(change.card_id)),
    Column("CHANGE", lambda change: change.kind),
    Column("NOW", lambda change: short_id(change.new_card_id) if change.new_card_id else NOTHING, spare=1),
    Column("RULE", lambda change: change.rule),
    Column("WHY", lambda change: change.reason),
)


@verb(
    "repair",
    "cbx box repair 8b1f22c0 --synthesize",
    "cbx box repair 8b1f22c0 --for anthropic --drop-orphans --dry-run",
    "cbx box repair $OUTPUT --after $CONTEXT --synthesize -o id",
    reads="dry_run",
)
def repair_box(
    box: BoxId,
    synthesize: Annotated[
        bool | None,
        Option(
            "--synthesize/--drop-orphans",
            help="Add an 'interrupted' result to each call without a result, or drop such calls and "
            "results without calls.",
        ),
    ] = None,
    for_: Annotated[
        list[str] | None,
        Option(
            "--for",
            click_type=PROVIDER,
            help="The provider whose rules to check. Repeatable. Default: all providers.",
        ),
    ] = None,
    after: Annotated[
        list[str] | None,
        Option("--after", click_type=BOX, help="A box that precedes this box in the request. Repeatable."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the changes without writing them.")] = False,
) -> None:
    """Fix what a provider would reject, in a new box. The old box and its cards do not change.

    Results move to their calls, and arguments become JSON. If there is no specific repair, cbx drops the
    card's imported original, or leaves the card out. Calls that an active turn waits for stay open.
    If an error remains that is not about a card of the box, cbx writes nothing and exits 8.
    """
    from cardbox_cli import box_repair
    from cardbox_cli.cli.terminal.lint_report import announce_findings
    from cardbox_cli.providers.registry import provider_named, providers

    if synthesize is None:
        raise UsageError(
            required_message("--synthesize or --drop-orphans"),
            hint="--synthesize adds missing results; --drop-orphans drops calls without results",
        )
    checked = [provider_named(name) for name in unique(for_ or [])] or list(providers())
    with open_database() as database:
        boxes = resolving_boxes(database, session().project_id)
        box_id = boxes.resolve(box)
        before = [boxes.resolve(each) for each in after or []]
        if box_id in before:
            raise UsageError(
                f"--after names the box to repair, {box_id}",
                hint="pass a box that comes before it in the request, such as a context box",
            )
        for each in before:
            boxes.require(each)
        mended, left = box_repair.repair_box(
            database,
            session().project_id,
            box_id,
            providers=checked,
            synthesizes=synthesize,
            before=before,
            author_id=OPERATOR,
            turn=own_turn(),
            dry_run=dry_run,
        )
        notes = rebox_hints(database, mended.box_id, mended.from_box_id, "box repair")
        if mended.changes and mended.box_id is not None:
            remember_made(box_id=mended.box_id)
    if left:
        announce_findings(left)
        rules = ", ".join(unique(finding.rule for finding in left))
        raise Findings(
            f"box {box_id} has errors that are not about its cards: {rules}",
            hint="nothing was written; fix the errors listed above"
            + ("" if synthesize else ", or try --synthesize"),
        )
    _emit_repaired_box(mended, notes, dry_run=dry_run)


@verb(
    "compress",
    "cbx box compress 8b1f22c0 --summary 'The order was refunded twice' --keep 4",
    "cbx box compress 8b1f22c0 --summary @summary.md --dry-run",
    "cbx box compress 8b1f22c0 --summary @summary.md --max-tokens 8000 --model gpt-4o",
    "cbx box compress 8b1f22c0 --summary-cmd 'llm -s \"Sum up\"' --env OPENAI_API_KEY",
    reads="dry_run",
)
def compress_box(
    box: BoxId,
    summary: Annotated[str | None, Option(metavar="TEXT|@FILE", help="The summary.")] = None,
    summary_cmd: Annotated[
        str | None,
        Option(metavar="CMD", help="A command that reads the messages as text and prints the summary."),
    ] = None,
    keep: Annotated[
        int | None,
        Option(metavar="N", min=0, max=MAX_COUNT, help="Keep the last N messages as they are. Default: 10."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        Option(
            metavar="N",
            min=1,
            max=MAX_COUNT,
            help="Instead of --keep: keep at most N tokens of messages, and summarize older messages. A "
            "box below the limit does not change.",
        ),
    ] = None,
    model: compose_options.Model = None,
    env: model_program.Variables = None,
    timeout: Annotated[
        float, Option(click_type=Seconds(min=0), help="Time limit of the summary command.")
    ] = 600,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print what would be summarized, without running or writing anything.")
    ] = False,
) -> None:
    """Replace older messages with a summary, in a new box. Undo it with `cbx box expand`.

    A call and its result are summarized together. System text, calls without a result and the last user
    message stay. The summary is a layer of the request (compression__context).
    """
    from cardbox_cli import box_repair

    if (summary is None) == (summary_cmd is None):
        raise UsageError(
            "pass either --summary or --summary-cmd",
            hint="for example --summary 'The order was refunded twice'",
        )
    kept_part = _parse_kept_part(keep, max_tokens, model)
    if summary_cmd is not None:
        check_command(summary_cmd, "--summary-cmd")
    refuse_inside_turn("replace cards with a summary")
    with open_stores() as (_, boxes):
        box_id = boxes.resolve(box)
        covering = box_repair.read_covering(boxes.database, session().project_id, box_id, keep=kept_part)
    if not covering.places:
        _emit_repaired_box(box_repair.skip_compression(covering), dry_run=dry_run)
        return
    if summary is not None:
        text = text_or_file(summary)
    elif dry_run:
        text = "(the summary)"
    else:
        text = _run_summary_command(summary_cmd or "", covering, env or [], timeout)
    with open_database() as database:
        outcome = box_repair.compress_box(
            database, session().project_id, covering, text, author_id=OPERATOR, dry_run=dry_run
        )
        notes = rebox_hints(database, outcome.box_id, outcome.from_box_id, "box compress")
        remember_made(card_id=outcome.summary_card_id, box_id=outcome.box_id)
    saved = f"~{outcome.tokens_covered} tokens of {format_count(len(covering.cards), 'message')}"
    facts = [("summary", f"~{outcome.tokens_summary} tokens for {saved}")]
    _emit_repaired_box(outcome, notes, dry_run=dry_run, facts=facts)


def _parse_kept_part(keep: int | None, max_tokens: int | None, model: str | None) -> "int | MaxTokens":
    """Return which part to keep. Raises UsageError for options that cannot be combined."""
    from cardbox_cli.box_repair import MaxTokens

    if keep is not None and max_tokens is not None:
        raise UsageError(conflict_message("--keep", "--max-tokens"), hint="remove one of them")
    if model is not None and max_tokens is None:
        raise UsageError("--model requires --max-tokens", hint="add --max-tokens N, or remove --model")
    if max_tokens is not None:
        return MaxTokens(max_tokens, model)
    return _DEFAULT_KEEP if keep is None else keep


def _run_summary_command(command: str, covering: "CoveredBox", names: list[str], timeout: float) -> str:
    """Return the command's output. Raises ServiceUnavailable if it fails."""
    from cardbox_cli.box_repair import format_cards
    from cardbox_cli.cli.options.model_program import environment_of
    from cardbox_cli.execution.worker.command_output import redact
    from cardbox_cli.execution.worker.command_processes import run_command

    ran = run_command(
        command,
        format_cards(session().project_id, covering.cards).encode("utf-8", "replace"),
        environment=environment_of(names, database_target()),
        timeout=timeout,
        stop=Event(),
        max_output=RESULT_SIZE.value << 20,
    )
    text = ran.stdout.decode("utf-8", "replace")
    written = indent_margin(redact(ran.stderr[-_STDERR_SHOWN:], cut=len(ran.stderr) > _STDERR_SHOWN).strip())
    if ran.succeeded and text.strip():
        return text
    raise ServiceUnavailable(
        f"the summary command {_describe_failure(ran, timeout)}; nothing was written",
        hint=f"fix the command; its stderr: {written}" if written else "check the command",
    )


# Messages.
_DEFAULT_KEEP = 10
# Characters of a failed command's stderr in the hint.
_STDERR_SHOWN = 500


def _describe_failure(ran: "CommandOutcome", timeout: float) -> str:
    if ran.timed_out:
        return f"took more than {timeout:g} seconds"
    if ran.too_long:
        return f"printed more than {RESULT_SIZE}"
    if ran.exit_code < 0:
        return f"was killed by signal {-ran.exit_code}"
    return "printed nothing" if ran.succeeded else f"failed with exit code {ran.exit_code}"


@verb(
    "expand",
    "cbx box expand 8b1f22c0",
    "cbx box diff $OLD $(cbx box expand $COMPRESSED -o id) && echo equal",
    reads="dry_run",
)
def expand_box(
    box: BoxId,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the changes without writing them.")] = False,
) -> None:
    """Undo `cbx box compress` in a new box: summarized cards return to their old positions.

    Cards that were appended to the compressed box follow. The ids of deleted cards are restored, too.
    """
    from cardbox_cli import box_repair

    with open_stores() as (cards, boxes):
        outcome = box_repair.expand_box(
            boxes.database, session().project_id, boxes.resolve(box), dry_run=dry_run
        )
        gone = cards.missing_ids([change.card_id for change in outcome.changes if change.kind == "added"])
        notes = rebox_hints(boxes.database, outcome.box_id, outcome.from_box_id, "box expand")
        remember_made(box_id=outcome.box_id)
    warnings = [f"warning: card {card_id} is gone; the new box contains its id" for card_id in gone]
    _emit_repaired_box(outcome, [*warnings, *notes], dry_run=dry_run)
