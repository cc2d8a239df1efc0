"""`cbx inbox show`."""

from cardbox_cli.cli.options.shared_options import InboxId
from cardbox_cli.cli.project_database import open_inbox
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.turns import InboxRow, Lease
from cardbox_cli.model.text.quantities import time


@verb(
    "show",
    "cbx inbox show 1d5c8f72",
    "cbx inbox show 1d5c8f72 -o json | jq .payload",
    pages=True,
    reads=True,
)
def show_row(inbox_id: InboxId) -> None:
    """Show an inbox row whole, and who has claimed it."""
    from cardbox_cli.store.execution.inbox import InboxStore

    with open_inbox() as inbox, inbox.database.snapshot():
        rows = InboxStore(inbox.database, inbox.project_id)
        found = rows.get(inbox.resolve(inbox_id))
        lease = rows.lease(found.inbox_id) if inbox.database.keeps_turns else None
    output.emit(found, table=lambda: _print_text(found, lease), ids=[found.inbox_id])


def _print_text(row: InboxRow, lease: Lease | None) -> None:
    output.facts(
        ("inbox row", row.inbox_id),
        ("agent", row.agent_id),
        ("type", row.message_type),
        ("status", row.status),
        ("turn", f"{row.turn_id}, epoch {row.turn_epoch}"),
        ("correlation", row.correlation_id),
        ("channel", row.channel_id),
        ("tries", str(row.retry_count)),
        ("created", time(row.created_at)),
        ("due", time(row.next_retry_at)),
        ("claimed by", None if lease is None else f"{lease.owner}, until {time(lease.expires_at)}"),
        ("processed", time(row.processed_at)),
        ("closed", time(row.archived_at)),
        ("deferred", row.defer_reason),
        ("error", row.last_error),
        ("payload", exact_json.encode(row.payload).decode()),
        ("headers", exact_json.encode(row.context_headers).decode()),
    )
