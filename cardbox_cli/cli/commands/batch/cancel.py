"""`cbx batch cancel`."""

from cardbox_cli.cli.actor import actor
from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.options.shared_options import BatchId, OptionalReason
from cardbox_cli.cli.terminal.batch_report import print_batch, resolved_own
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Conflict


@verb("cancel", "cbx batch cancel 5e1f0a27 --reason 'asked for by mistake'")
def cancel_batch(batch: BatchId, reason: OptionalReason = None) -> None:
    """End a batch as failed, and stop its children: what they write from then on is refused."""
    from cardbox_cli.orchestration.batches.manager import cancel
    from cardbox_cli.orchestration.batches.view import batch_view

    with runtime() as run:
        batch_id = resolved_own(run, batch)
        if not cancel(run, batch_id, reason=reason or "canceled", actor=actor(run.database)):
            status = run.batches.get(batch_id).status
            raise Conflict(
                f"batch {batch_id} has ended: {status}", hint="`cbx batch show` shows what came of it"
            )
        seen = batch_view(run, run.batches.get(batch_id))
    print_batch(seen)
