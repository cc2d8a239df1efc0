"""`cbx turn retry`."""

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.last_ids import remember_made, resolving_turns
from cardbox_cli.cli.options.shared_options import TurnId
from cardbox_cli.cli.terminal.turn_report import print_dispatched, refuse
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.cards import OPERATOR


@verb(
    "retry",
    "cbx turn retry 1d5c8f72",
    "cbx turn list --end failed --since 1h -o id | xargs -n1 cbx turn retry",
    "cbx turn retry @last -o id | xargs cbx turn wait",
)
def retry_turn(turn: TurnId) -> None:
    """Ask anew for a turn that ended otherwise than in success: another turn, with the same boxes to read.

    A call that still waits for the end of the old one gets that of the new one. Exit 6 when it was refused.
    """
    from cardbox_cli.execution.recovery import retrying

    with runtime() as run:
        turn_id = resolving_turns(run.database, run.project_id).resolve(turn)
        dispatched = retrying.retry_turn(run, turn_id, source_agent_id=OPERATOR)
        if dispatched.result.status != "accepted":
            refuse(dispatched)
        remember_made(turn_id=dispatched.result.agent_turn_id, box_id=dispatched.result.context_box_id)
    print_dispatched(dispatched.result)
