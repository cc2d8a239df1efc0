"""`cbx turn fail`."""

from cardbox_cli.cli.commands.turn.fixing import fix
from cardbox_cli.cli.options.shared_options import ExpectEpoch, Reason, TurnId
from cardbox_cli.cli.verb import verb


@verb("fail", "cbx turn fail 1d5c8f72 --expect-epoch 3 --reason 'its context box is lost'")
def fail_turn(turn: TurnId, expect_epoch: ExpectEpoch, reason: Reason) -> None:
    """End a turn as failed, with the reason in its deliverable. A queued one: `cbx turn stop`."""
    from cardbox_cli.execution.recovery import fixes

    fix(turn, fixes.fail, expect_epoch=expect_epoch, reason=reason)
