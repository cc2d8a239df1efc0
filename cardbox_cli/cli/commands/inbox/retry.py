"""`cbx inbox retry`."""

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.commands.inbox.claimed import print_row, resolve_row
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.shared_options import InboxId
from cardbox_cli.cli.terminal.turn_report import refuse
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.cards import OPERATOR


@verb("retry", "cbx inbox list --dead -o id | xargs -n1 cbx inbox retry")
def retry_row(inbox: InboxId) -> None:
    """Try a dead row again: a report or a stop becomes due, a turn is dispatched anew as another turn."""
    from cardbox_cli.execution.recovery.retrying import retry

    with runtime() as run:
        retried = retry(run, resolve_row(run, inbox), source_agent_id=OPERATOR)
        if retried.dispatched is not None and retried.dispatched.result.status != "accepted":
            refuse(retried.dispatched)
        if retried.dispatched is None:
            row = retried.row
        else:
            row = run.inbox.get(retried.dispatched.result.inbox_id or "")
            remember_made(turn_id=row.turn_id)
    print_row(row)
