"""`cbx turn stop`."""

from cardbox_cli.cli.commands.turn.fixing import fix
from cardbox_cli.cli.options.shared_options import OptionalReason, TurnId
from cardbox_cli.cli.verb import verb


@verb("stop", "cbx turn stop 1d5c8f72 --reason 'asked for by mistake'")
def stop_turn(turn: TurnId, reason: OptionalReason = None) -> None:
    """End a turn at once as canceled, whatever its state. Its runner learns it at the next heartbeat."""
    from cardbox_cli.execution.recovery import fixes

    fix(turn, fixes.stop, reason=reason)
