"""`cbx turn nudge`."""

from cardbox_cli.cli.commands.turn.fixing import free
from cardbox_cli.cli.options.shared_options import TurnId
from cardbox_cli.cli.verb import verb


@verb("nudge", "cbx turn nudge 1d5c8f72")
def nudge_turn(turn: TurnId) -> None:
    """Notify the workers of a turn again, and promote what is queued on an idle agent. The epoch stays."""
    from cardbox_cli.execution.recovery import fixes

    free(turn, fixes.nudge)
