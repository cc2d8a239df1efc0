"""`cbx batch`: lists, watches, retries and cancels batches of tasks."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.actor import actor
from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.last_ids import resolving_batches
from cardbox_cli.cli.options import shared_options
from cardbox_cli.cli.options.value_types import OneOf
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.batch_report import await_batch, print_batch
from cardbox_cli.cli.terminal.list_columns import BATCH_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, empty_note, filter_readers, show_list
from cardbox_cli.cli.terminal.table_layout import choose_columns
from cardbox_cli.cli.terminal.watch import poll_interval
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Conflict
from cardbox_cli.model.execution.batches import BATCH_STATUSES
from cardbox_cli.settings import read_settings

if TYPE_CHECKING:
    from cardbox_cli.execution.runtime import Runtime


@verb(
    "list",
    "cbx batch list",
    "cbx batch list --status running -o id",
    "cbx batch list --watch",
    pages=True,
    reads=True,
)
def list_batches(
    limit: shared_options.Limit = 50,
    status: Annotated[
        str | None,
        Option(click_type=OneOf(lambda: BATCH_STATUSES, what="state"), help="Only batches in this state."),
    ] = None,
    since: shared_options.Since = None,
    until: shared_options.Until = None,
    columns: Annotated[str | None, shared_options.column_option("id,status,ended")] = None,
    watch: shared_options.Watch = False,
    interval: shared_options.Interval = 1.0,
) -> None:
    """List batches, newest first, including batches of another system's manager (`pmo`)."""
    from cardbox_cli.store.execution.batch_store import BatchFilter

    first, last = shared_options.parse_span(since, until)
    where = BatchFilter(status=status, since=first, until=last)
    pause = poll_interval(watch, interval)
    shown = choose_columns(BATCH_COLUMNS, columns)
    with open_database() as database:
        batches = resolving_batches(database, session().project_id)
        reading = filter_readers(batches.newest, batches.further, where)
        empty = empty_note("batches", narrowed=where != BatchFilter())
        listing = Listing(*reading, limit, shown, item_id=lambda batch: batch.batch_id, empty=empty)
        show_list(listing, database, interval=pause)


@verb(
    "show",
    "cbx batch show 5e1f0a27",
    "cbx batch show 5e1f0a27 -o json | jq -r '.results[].summary'",
    pages=True,
    reads=True,
)
def show_batch(batch: shared_options.BatchId) -> None:
    """Show a batch and the deliverables of its children, in task order."""
    from cardbox_cli.inspect.batches import BatchReader

    with open_database() as database, database.snapshot():
        batches = resolving_batches(database, session().project_id)
        view = BatchReader(batches, read_settings(), session().project_option).read(batch)
    print_batch(view)


@verb(
    "watch",
    "cbx batch watch 5e1f0a27",
    "cbx batch watch 5e1f0a27 --join-box -o id",
    "cbx batch watch 5e1f0a27 -o jsonl | jq -r '\"\\(.task_index) \\(.state)\"'",
)
def watch_batch(
    batch: shared_options.BatchId,
    timeout: shared_options.EndTimeout = None,
    join_box: Annotated[
        bool, Option("--join-box", help="Create a box of the deliverables, in order.")
    ] = False,
) -> None:
    """Watch a batch until it ends, run its overdue work, and print its results.

    Exit 8 if it does not succeed, 124 when --timeout elapses. Ctrl-C leaves the batch running.
    """
    with runtime() as run:
        await_batch(run, _own_id(run, batch), timeout=timeout, joined=join_box)


@verb("cancel", "cbx batch cancel 5e1f0a27 --reason 'asked for by mistake'")
def cancel_batch(batch: shared_options.BatchId, reason: shared_options.OptionalReason = None) -> None:
    """End a batch as failed, and stop its children. cbx refuses their later writes."""
    from cardbox_cli.inspect.batches import view_batch
    from cardbox_cli.orchestration.batch_manager import cancel

    with runtime() as run:
        batch_id = _own_id(run, batch)
        if not cancel(run, batch_id, reason=reason or "canceled", actor=actor(run.database)):
            status = run.batches.get(batch_id).status
            raise Conflict(
                f"batch {batch_id} has ended: {status}",
                hint=f"see its results with `cbx batch show {batch_id}`",
            )
        view = view_batch(run, run.batches.get(batch_id), session().project_option)
    print_batch(view)


@verb(
    "retry",
    "cbx batch retry 5e1f0a27",
    "cbx batch retry 5e1f0a27 -o id | xargs cbx batch watch",
)
def retry_batch(
    batch: shared_options.BatchId,
    failed: Annotated[
        bool, Option("--failed", help="Only children that failed, not those canceled, late or partial.")
    ] = False,
) -> None:
    """Run the children of a batch again that did not succeed.

    A running batch counts the new turns. If the batch has ended, a new batch runs them and carries over the
    other results; the old one stays as its parent knows it.
    """
    from cardbox_cli.inspect.batches import view_batch
    from cardbox_cli.orchestration.batch_retry import retry_batch as retry

    with runtime() as run:
        retried = retry(run, _own_id(run, batch), only_failed=failed, actor=actor(run.database))
        view = view_batch(run, run.batches.get(retried.batch_id), session().project_option)
    print_batch(view)


def _own_id(run: "Runtime", batch: str) -> str:
    from cardbox_cli.inspect.batches import resolve_own

    return resolve_own(resolving_batches(run.database, run.project_id), batch)
