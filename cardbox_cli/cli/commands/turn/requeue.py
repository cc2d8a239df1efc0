"""`cbx turn requeue`."""

from cardbox_cli.cli.commands.turn.fixing import fix
from cardbox_cli.cli.options.shared_options import ExpectEpoch, Reason, TurnId
from cardbox_cli.cli.verb import verb


@verb("requeue", "cbx turn requeue 1d5c8f72 --expect-epoch 3 --reason 'the model was down'")
def requeue_turn(turn: TurnId, expect_epoch: ExpectEpoch, reason: Reason) -> None:
    """Put a turn back into its agent's queue, to begin anew. What it wrote stays."""
    from cardbox_cli.execution.recovery import fixes

    fix(turn, fixes.requeue, expect_epoch=expect_epoch, reason=reason)
