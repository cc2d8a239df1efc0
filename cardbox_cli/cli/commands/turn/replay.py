"""`cbx turn replay`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.commands.turn import again
from cardbox_cli.cli.last_ids import resolving_turns
from cardbox_cli.cli.options import model_program
from cardbox_cli.cli.options.shared_options import EndTimeout, TurnId
from cardbox_cli.cli.options.value_types import PROFILE
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb(
    "replay",
    "cbx turn replay 1d5c8f72 --exec 'python3 client.py' --times 3",
    "cbx turn replay @last --profile terse --timeout 300 -o json | jq '.replays[].same_text'",
    "cbx turn replay 1d5c8f72 --no-wait -o id | xargs -n1 cbx turn wait",
)
def replay_turn(
    turn: TurnId,
    profile: Annotated[
        str | None, Option(click_type=PROFILE, help="By this profile; default: the one that it had.")
    ] = None,
    exec_: again.Exec = None,
    env: model_program.Variables = None,
    tools: model_program.ToolsFile = None,
    trust_stored_commands: model_program.TrustStored = False,
    times: Annotated[int, Option(metavar="N", min=1, max=100, help="How often.")] = 1,
    timeout: EndTimeout = None,
    no_wait: Annotated[
        bool, Option("--no-wait", help="Only ask for the turns, and print their ids.")
    ] = False,
) -> None:
    """Run a turn again: the same context, in a fresh output box, and compare what came with what came then.

    A fresh agent runs it, so the turn's own agent and its boxes stay as they are. Tools that the model calls
    are called again. Exit 8 when one of the turns did not end in success, 124 when that took too long.
    """
    from cardbox_cli.execution.views.waiting import wait_for_end
    from cardbox_cli.orchestration.replay import Again

    with runtime() as run:
        turns = resolving_turns(run.database, run.project_id)
        turn_id = turns.resolve(turn)
        target = None if exec_ is None else again.own_target()
        program = None
        if exec_ is not None:
            program = again.program_of(
                run,
                turn_id,
                exec_,
                env=env or (),
                tools=tools,
                trust_stored_commands=trust_stored_commands,
            )
        asked = again.ask(run, turn_id, Again(times=times, profile_name=profile, worker_target=target))
        if program is not None and target is not None:
            again.run_here(run, asked, target, program)
        elif no_wait:
            output.emit({"agent_turn_ids": asked}, table=lambda: output.print_lines(asked), ids=asked)
            return
        else:
            for each in asked:
                wait_for_end(turns, each, timeout=timeout)
        again.print_compared(turns, turn_id, asked)
