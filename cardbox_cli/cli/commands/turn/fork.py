"""`cbx turn fork`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.commands.turn import again
from cardbox_cli.cli.last_ids import resolving_turns
from cardbox_cli.cli.options import model_program
from cardbox_cli.cli.options.shared_options import TurnId
from cardbox_cli.cli.options.value_types import PROFILE
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb(
    "fork",
    "cbx turn fork 1d5c8f72 --at 3 --instruction 'Look at the second log, too.'",
    "cbx turn fork @last --at 2 --profile careful --exec 'python3 client.py'",
)
def fork_turn(
    turn: TurnId,
    at: Annotated[
        str, Option(metavar="STEP", help="The step that is taken otherwise: its number, or its id.")
    ],
    instruction: Annotated[
        str | None, Option(metavar="TEXT", help="What the model is told behind what the turn had written.")
    ] = None,
    profile: Annotated[
        str | None, Option(click_type=PROFILE, help="By this profile; default: the one that it had.")
    ] = None,
    exec_: again.Exec = None,
    env: model_program.Variables = None,
    tools: model_program.ToolsFile = None,
    trust_stored_commands: model_program.TrustStored = False,
) -> None:
    """Go on from the middle of a turn: a fresh agent takes the step again, with what was there before it.

    The turn stays as it is. With --exec it is run here and compared with the old one; else workers run it.
    """
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
        wanted = Again(profile_name=profile, worker_target=target, at=at, instruction=instruction)
        asked = again.ask(run, turn_id, wanted)
        if program is not None and target is not None:
            again.run_here(run, asked, target, program)
            again.print_compared(turns, turn_id, asked)
        else:
            output.emit(
                {"agent_turn_id": asked[0]}, table=lambda: output.facts(("turn", asked[0])), ids=asked
            )
