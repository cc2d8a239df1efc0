"""`cbx turn reclaim`."""

from cardbox_cli.cli.commands.turn.fixing import fix
from cardbox_cli.cli.options.shared_options import ExpectEpoch, Reason, TurnId
from cardbox_cli.cli.verb import verb


@verb("reclaim", "cbx turn reclaim 1d5c8f72 --expect-epoch 3 --reason 'its worker is gone'")
def reclaim_turn(turn: TurnId, expect_epoch: ExpectEpoch, reason: Reason) -> None:
    """Take a turn away from whoever runs it, to be claimed anew."""
    from cardbox_cli.execution.recovery import fixes

    fix(turn, fixes.reclaim, expect_epoch=expect_epoch, reason=reason)
