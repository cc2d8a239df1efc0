"""`cbx box compress`."""

from threading import Event
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.commands.box.mended import emit_mended, tell_turns
from cardbox_cli.cli.parameters import composing, working
from cardbox_cli.cli.parameters.inputs import read_text
from cardbox_cli.cli.parameters.options import MOST, BoxId
from cardbox_cli.cli.parameters.programs import check_command
from cardbox_cli.cli.parameters.types import Seconds
from cardbox_cli.cli.parameters.worker_environment import refuse_inside_turn
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import ServiceUnavailable, UsageError
from cardbox_cli.limits import RESULT_SIZE
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.text.quantities import count
from cardbox_cli.model.text.visible_text import one_entry

if TYPE_CHECKING:
    from cardbox_cli.box_repair import Covering, MaxTokens
    from cardbox_cli.execution.worker.commands.command import Ran


@verb(
    "cbx box compress 8b1f22c0 --summary 'The order was refunded twice' --keep 4",
    "cbx box compress 8b1f22c0 --summary @summary.md --dry-run",
    "cbx box compress 8b1f22c0 --summary @summary.md --max-tokens 8000 --model gpt-4o",
    "cbx box compress 8b1f22c0 --summary-cmd 'llm -s \"Sum up\"' --env OPENAI_API_KEY",
    reads="dry_run",
)
def command(
    box: BoxId,
    summary: Annotated[str | None, Option(metavar="TEXT|@FILE", help="The summary.")] = None,
    summary_cmd: Annotated[
        str | None,
        Option(metavar="CMD", help="What makes it: reads the messages that go as text, prints the summary."),
    ] = None,
    keep: Annotated[
        int | None,
        Option(metavar="N", min=0, max=MOST, help="The last so many messages stay as they are. Default: 10."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        Option(
            metavar="N",
            min=1,
            max=MOST,
            help="Instead: sum up only what is too much. What stays beside the summary has at most so many "
            "tokens; a box that has no more is left as it is.",
        ),
    ] = None,
    model: composing.Model = None,
    env: working.Variables = None,
    timeout: Annotated[
        float, Option(click_type=Seconds(min=0), help="Stop CMD after so many seconds.")
    ] = 600,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print what the summary would stand for; run and write nothing.")
    ] = False,
) -> None:
    """Make a new box with a summary in the place of what is old. `cbx box expand` brings it back.

    Calls and results go together. System text stays, and so do calls without a result and what the user said
    last. The summary is a layer of the request (compression__context).
    """
    from cardbox_cli.box_repair import compress_box, read_covering, unchanged

    if (summary is None) == (summary_cmd is None):
        raise UsageError(
            "a summary is brought by one of --summary and --summary-cmd",
            hint="give the text, or the command that makes it",
        )
    wanted = _wanted(keep, max_tokens, model)
    if summary_cmd is not None:
        check_command(summary_cmd, "--summary-cmd")
    refuse_inside_turn("let a summary stand for cards")
    with session().stores() as (_, boxes):
        box_id = boxes.resolve(box)
        covering = read_covering(boxes.database, session().project_id, box_id, keep=wanted)
    if not covering.places:
        emit_mended(unchanged(covering), dry_run=dry_run)
        return
    if summary is not None:
        text = read_text(summary[1:]) if summary.startswith("@") else summary
    else:
        text = "(the summary)" if dry_run else _made_by(summary_cmd or "", covering, env or [], timeout)
    with session().database() as database:
        made = compress_box(
            database, session().project_id, covering, text, author_id=OPERATOR, dry_run=dry_run
        )
        notes = tell_turns(database, made.box_id, made.from_box_id, "box compress")
        session().made(card_id=made.summary_card_id, box_id=made.box_id)
    saved = f"~{made.tokens_covered} tokens of {count(len(covering.cards), 'message')}"
    emit_mended(made, dry_run=dry_run, facts=[("summary", f"~{made.tokens_summary} tokens for {saved}")])
    for note in notes:
        announce(note)


def _wanted(keep: int | None, max_tokens: int | None, model: str | None) -> "int | MaxTokens":
    """What shall stay as it is. Raises UsageError for what does not go together."""
    from cardbox_cli.box_repair import MaxTokens

    if keep is not None and max_tokens is not None:
        raise UsageError("--keep and --max-tokens both say what stays", hint="leave one of them out")
    if model is not None and max_tokens is None:
        raise UsageError("--model is for --max-tokens", hint="add --max-tokens N, or leave --model out")
    return MaxTokens(max_tokens, model) if max_tokens is not None else _KEPT if keep is None else keep


def _made_by(command: str, covering: "Covering", names: list[str], timeout: float) -> str:
    """What the command prints. Raises ServiceUnavailable where it fails; then nothing is written."""
    from cardbox_cli.box_repair import text_of
    from cardbox_cli.cli.parameters.programs import environment_of
    from cardbox_cli.execution.worker.commands.command import run_command
    from cardbox_cli.execution.worker.redaction import redacted

    ran = run_command(
        command,
        text_of(session().project_id, covering.cards).encode("utf-8", "replace"),
        environment=environment_of(names, session().target()),
        timeout=timeout,
        stop=Event(),
        max_output=RESULT_SIZE.value << 20,
    )
    text = ran.stdout.decode("utf-8", "replace")
    written = one_entry(redacted(ran.stderr[-_SHOWN:], cut=len(ran.stderr) > _SHOWN).strip())
    if ran.succeeded and text.strip():
        return text
    raise ServiceUnavailable(
        f"the summary command {_why(ran, timeout)}: nothing was written",
        hint=f"on stderr it wrote {written}" if written else None,
    )


# How many messages stay where nobody says what.
_KEPT = 10
# Characters of what a command that failed wrote on stderr.
_SHOWN = 500


def _why(ran: "Ran", timeout: float) -> str:
    if ran.timed_out:
        return f"took more than {timeout:g} seconds"
    if ran.too_long:
        return f"printed more than {RESULT_SIZE}"
    if ran.exit_code < 0:
        return f"was ended by signal {-ran.exit_code}"
    return "printed nothing" if ran.succeeded else f"failed with exit code {ran.exit_code}"
