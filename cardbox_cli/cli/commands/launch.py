"""`cbx launch`: a fresh agent of a profile begins a task of its own."""

from typing import Annotated

from typer import Argument

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
    "launch",
    "cbx launch release-manager 'Release 2.4'",
    "cbx launch release-manager @task.md --wait --timeout 600 > notes.md",
    "cbx launch release-manager @task.md --turn-id release-2.4 -o id",
)
def launch_agent(
    profile: Annotated[str, Argument(click_type=PROFILE, help="The name of the profile.")],
    instruction: Annotated[str, Argument(metavar="TEXT|@FILE", help="What to do.")],
    caller: CallerName = None,
    turn_id: NewTurnId = None,
    wait: WaitForEnd = False,
    timeout: EndTimeout = None,
) -> None:
    """Launch a principal: a fresh agent of a profile, which reads the instruction and who asked."""
    from cardbox_cli.orchestration.delegate import launch_principal

    check_waiting(timeout, wait=wait)
    said = text_or_file(instruction)
    with runtime() as run:
        task = task_of(run, "launch", target_strategy="new", target_ref=profile, instruction=said)
        by = caller_named(run, caller)
        done = launch_principal(run, by, task.target_ref, task.instruction, agent_turn_id=turn_id)
        print_delegated(run, done, wait=wait, timeout=timeout)
