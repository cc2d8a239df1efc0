"""`cbx inbox cancel`."""

from cardbox_cli.cli.actor import actor
from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.commands.inbox.claimed import print_row, resolve_row
from cardbox_cli.cli.options.shared_options import InboxId, OptionalReason
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.text.command_lines import argument


@verb("cancel", "cbx inbox cancel 1d5c8f72 --reason 'asked for twice'")
def cancel_row(inbox: InboxId, reason: OptionalReason = None) -> None:
    """End the turn of a queued row before it begins, as canceled."""
    from cardbox_cli.errors import Conflict
    from cardbox_cli.execution.recovery import fixes

    with runtime() as run:
        row = run.inbox.get(resolve_row(run, inbox))
        if row.status != "queued":
            raise Conflict(
                f"the inbox row {row.inbox_id} is {row.status}, not queued",
                hint=f"`cbx turn stop {argument(row.turn_id)}` ends a turn in any state",
            )
        fixes.stop(run, row.turn_id, actor=actor(run.database), reason=reason)
        row = run.inbox.get(row.inbox_id)
    print_row(row)
