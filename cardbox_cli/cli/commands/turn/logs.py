"""What `cbx turn logs` prints: what the commands of a turn wrote on stderr."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from typer import Option

from cardbox_cli.cli.options.shared_options import TurnId
from cardbox_cli.cli.project_database import open_turns
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.text.command_lines import argument
from cardbox_cli.model.text.durations import duration
from cardbox_cli.model.text.quantities import time
from cardbox_cli.model.text.visible_text import indented

if TYPE_CHECKING:
    from cardbox_cli.model.execution.logs import CommandLog
    from cardbox_cli.model.execution.turns import Step


@verb(
    "logs",
    "cbx turn logs @last",
    "cbx turn logs 1d5c8f72 --step 2",
    "cbx turn logs @last -o json | jq -r '.[] | select(.exit_code != 0).stderr'",
    pages=True,
    reads=True,
)
def show_logs(
    turn: TurnId,
    step: Annotated[
        str | None,
        Option(metavar="N", help="Only of this step: its number, or 4 or more characters of its id."),
    ] = None,
) -> None:
    """Show what the commands of a turn, the model's and its tools', wrote on stderr.

    Kept is the end of it, without what looks like a secret; of commands that wrote nothing, only those that
    failed.
    """
    from cardbox_cli.store.execution.logs import LogStore
    from cardbox_cli.store.execution.turns import TurnStore

    with open_turns() as turns, turns.database.snapshot():
        store = LogStore(turns.database, turns.project_id)
        store.require()
        turn_id = turns.resolve(turn)
        steps = TurnStore(turns.database, turns.project_id).steps(turn_id)
        step_id = None if step is None else _step_id(steps, step, turn_id)
        logs = store.of_turn(turn_id, step_id=step_id)
    numbers = _numbers(steps)
    output.emit(
        [{"step": numbers.get(log.step_id), **msgspec.structs.asdict(log)} for log in logs],
        table=lambda: _print_text(logs, numbers),
        ids=[log.log_id for log in logs],
    )
    if not logs:
        announce(f"nothing is kept of what the commands of turn {turn_id} wrote on stderr")


def _numbers(steps: "list[Step]") -> dict[str, int]:
    return {step.step_id: number for number, step in enumerate(steps, 1)}


def _print_text(logs: "list[CommandLog]", numbers: dict[str, int]) -> None:
    for log in logs:
        if log is not logs[0]:
            output.print_text()
        output.print_painted([("bold", _headline(log, numbers.get(log.step_id)))])
        if log.stderr:
            output.print_text(indented(log.stderr.rstrip("\n")))


def _headline(log: "CommandLog", number: int | None) -> str:
    step = f"step {short_id(log.step_id) if number is None else number}"
    took = duration(log.ended_at - log.started_at)
    wrote = f"{log.stderr_bytes:,} bytes{_cut(log)}"
    return f"{time(log.ended_at)}  {step}: {log.whose} {log.outcome} after {took}; {wrote}"


def _cut(log: "CommandLog") -> str:
    """That not all is kept, where it is not the secrets left out that make it shorter."""
    from cardbox_cli.execution.worker.redaction import REDACTED

    kept = len(log.stderr.encode())
    return f", the last {kept:,} are kept" if log.stderr_bytes > kept and REDACTED not in log.stderr else ""


def _step_id(steps: "Sequence[Step]", given: str, turn_id: str) -> str:
    from cardbox_cli.execution.requests.recorded import named_step

    shows = f"`cbx turn show {argument(short_id(turn_id))}`"
    return named_step(steps, given, f"turn {turn_id!r}", shows).step_id
