"""`cbx batch show`."""

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.options.shared_options import BatchId
from cardbox_cli.cli.terminal.batch_report import print_batch, resolved
from cardbox_cli.cli.verb import verb


@verb(
    "show",
    "cbx batch show 5e1f0a27",
    "cbx batch show 5e1f0a27 -o json | jq -r '.results[].summary'",
    pages=True,
    reads=True,
)
def show_batch(batch: BatchId) -> None:
    """Show a batch and, in the order of its tasks, what its children delivered."""
    from cardbox_cli.orchestration.batches.view import batch_view, foreign_view
    from cardbox_cli.store.views.batches import BatchViews

    with runtime() as run, run.database.snapshot():
        batch_id = resolved(run, batch)
        views = BatchViews(run.database, run.project_id)
        foreign = views.find_foreign(batch_id)
        if foreign is not None:
            seen = foreign_view(views, foreign)
        else:
            seen = batch_view(run, run.batches.get(batch_id))
    print_batch(seen, foreign=foreign is not None)
