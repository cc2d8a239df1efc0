"""`cbx ask`: a fresh agent of a profile is asked one question."""

from typing import Annotated

from typer import Argument, Option

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.options.input_files import text_or_file
from cardbox_cli.cli.options.shared_options import EndTimeout
from cardbox_cli.cli.options.value_types import PROFILE
from cardbox_cli.cli.parameters.asking import (
    CallerName,
    NewTurnId,
    WaitForEnd,
    caller_named,
    check_waiting,
    task_of,
)
from cardbox_cli.cli.terminal.turn_report import print_delegated
from cardbox_cli.cli.verb import verb


@verb(
    "ask",
    "cbx ask lawyer 'Does the licence allow this?' --wait",
    "cbx ask lawyer @question.md --caller clerk --include-history -o id",
)
def ask_agent(
    profile: Annotated[str, Argument(click_type=PROFILE, help="The name of the expert's profile.")],
    question: Annotated[str, Argument(metavar="TEXT|@FILE", help="The question.")],
    include_history: Annotated[
        bool,
        Option(
            "--include-history", help="The expert first reads what the --caller has written in its last box."
        ),
    ] = False,
    caller: CallerName = None,
    turn_id: NewTurnId = None,
    wait: WaitForEnd = False,
    timeout: EndTimeout = None,
) -> None:
    """Ask an expert one question: a fresh agent of a profile, with or without the caller's history."""
    from cardbox_cli.orchestration.delegate import ask_expert

    check_waiting(timeout, wait=wait)
    said = text_or_file(question)
    with runtime() as run:
        task = task_of(run, "ask", target_strategy="new", target_ref=profile, instruction=said)
        done = ask_expert(
            run,
            caller_named(run, caller),
            task.target_ref,
            task.instruction,
            include_history=include_history,
            agent_turn_id=turn_id,
        )
        print_delegated(run, done, wait=wait, timeout=timeout)
