"""`cbx delegate`: a task is handed to an agent: a new one, one that exists, or a clone of one."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.options.input_files import text_or_file
from cardbox_cli.cli.options.shared_options import EndTimeout
from cardbox_cli.cli.options.value_types import BOX, TARGET, OneOf
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

STRATEGIES = ("new", "reuse", "clone")


@verb(
    "delegate",
    "cbx delegate --strategy new --ref researcher --instruction 'Find the cause'",
    "cbx delegate --strategy reuse --ref researcher-1 --instruction @task.md --context-box @last --wait",
    "cbx delegate --strategy clone --ref researcher-1 --instruction 'Now in German' --caller lead -o id",
    "cbx delegate --strategy new --ref clerk --instruction @task.md --turn-id nightly-$(date +%F)",
)
def delegate_task(
    strategy: Annotated[
        str,
        Option(
            click_type=OneOf(lambda: STRATEGIES, what=None),
            help="A fresh agent of a profile, one that exists, or a fresh one that knows what one wrote.",
        ),
    ],
    ref: Annotated[str, Option(click_type=TARGET, help="The profile for new, else the agent.")],
    instruction: Annotated[str, Option(metavar="TEXT|@FILE", help="What to do.")],
    context_box: Annotated[
        str | None,
        Option("--context-box", "-c", click_type=BOX, help="A box that it reads before the instruction."),
    ] = None,
    caller: CallerName = None,
    turn_id: NewTurnId = None,
    wait: WaitForEnd = False,
    timeout: EndTimeout = None,
) -> None:
    """Hand a task to an agent: its context is packed and its turn dispatched, all or nothing.

    Exit 6 when the turn was not accepted. What the caller's delegation_policy would refuse a model, a person
    is only told.
    """
    from cardbox_cli.orchestration.delegate import delegate

    check_waiting(timeout, wait=wait)
    said = {"target_strategy": strategy, "target_ref": ref, "instruction": text_or_file(instruction)}
    with runtime() as run:
        task = task_of(run, "delegate", context_box, **said)
        done = delegate(run, caller_named(run, caller), task, agent_turn_id=turn_id)
        print_delegated(run, done, wait=wait, timeout=timeout)
