"""`cbx inbox`: the queue rows of agents."""

import math
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Concatenate, ParamSpec

from typer import Option

from cardbox_cli.cli.actor import actor, user_name
from cardbox_cli.cli.command_runtime import listener, runtime
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options import shared_options
from cardbox_cli.cli.options.value_types import OneOf, Seconds
from cardbox_cli.cli.project_database import open_inbox
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import INBOX_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, empty_note, filter_readers, show_list
from cardbox_cli.cli.terminal.table_layout import Column, Shown, choose_columns
from cardbox_cli.cli.terminal.turn_report import refuse
from cardbox_cli.cli.terminal.watch import poll_interval
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.execution.turns import CONSUMED, ERROR, OPEN, SKIPPED, InboxRow
from cardbox_cli.settings import OWNER
from cardbox_cli.text.command_lines import quote_argument
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.times import format_time

if TYPE_CHECKING:
    from cardbox_cli.execution.runtime import Runtime


P = ParamSpec("P")

Owner = Annotated[
    str | None,
    Option(metavar="NAME", help="The owner of the claim. Default: CBX_OWNER, else your user and host."),
]


def _give_back(
    inbox: str, do: "Callable[Concatenate[Runtime, str, P], object]", *args: P.args, **kwargs: P.kwargs
) -> None:
    """Return a claimed row with a function of `queue.claims`, and print its new state."""
    with runtime() as run:
        inbox_id = _resolve_row(run, inbox)
        do(run, inbox_id, *args, **kwargs)
        row = run.inbox.get(inbox_id)
    _print_row(row)


def _resolve_row(run: "Runtime", inbox: str) -> str:
    from cardbox_cli.store.views.inbox_views import InboxViews

    return InboxViews(run.database, run.project_id).resolve(inbox)


def _owner_name(owner: str | None) -> str:
    return owner or OWNER.text() or f"shell {user_name() or os.getuid()}@{socket.gethostname()}"


def _print_row(row: InboxRow) -> None:
    output.emit(
        row,
        table=lambda: output.facts(
            ("inbox row", row.inbox_id),
            ("turn", row.turn_id),
            ("status", row.status),
            ("tries", str(row.retry_count)),
            ("error", row.last_error),
        ),
        ids=[row.inbox_id],
    )


_STATUSES = (*OPEN, CONSUMED, ERROR, SKIPPED)


def _message_types() -> list[str]:
    from cardbox_cli.execution.queue.messages import TYPES

    return [each.name for each in TYPES.values() if each.claim is not None]


@verb(
    "list",
    "cbx inbox list --agent clerk --status queued",
    "cbx inbox list --dead --columns full-id,agent,tries,why",
    "cbx inbox list --watch",
    pages=True,
    reads=True,
)
def list_inbox_rows(
    limit: shared_options.Limit = 50,
    agent: shared_options.OfAgent = None,
    status: Annotated[
        str | None, Option(click_type=OneOf(lambda: _STATUSES, what="state"), help="Only rows in this state.")
    ] = None,
    message_type: Annotated[
        str | None,
        Option("--type", "-t", click_type=OneOf(_message_types, what=None), help="Only rows of this type."),
    ] = None,
    dead: Annotated[bool, Option("--dead", help="Only dead rows, which are not retried.")] = False,
    columns: Annotated[str | None, shared_options.column_option("id,agent,status")] = None,
    watch: shared_options.Watch = False,
    interval: shared_options.Interval = 1.0,
) -> None:
    """List inbox rows, newest first."""
    from cardbox_cli.store.views.inbox_views import InboxFilter

    if dead and status not in (None, ERROR):
        raise UsageError(conflict_message("--dead", f"--status {status}"), hint="remove one of them")
    where = InboxFilter(agent_id=agent, status=ERROR if dead else status, message_type=message_type)
    pause = poll_interval(watch, interval)
    shown = choose_columns(INBOX_COLUMNS, columns)
    with open_inbox() as inbox:
        reading = filter_readers(inbox.newest, inbox.further, where)
        empty = empty_note("inbox rows", narrowed=where != InboxFilter())
        listing = Listing(*reading, limit, shown, item_id=lambda row: row.inbox_id, empty=empty)
        show_list(listing, inbox.database, interval=pause)


@verb(
    "show", "cbx inbox show 1d5c8f72", "cbx inbox show 1d5c8f72 -o json | jq .payload", pages=True, reads=True
)
def show_row(inbox_id: shared_options.InboxId) -> None:
    """Show an inbox row and its lease."""
    from cardbox_cli.store.execution.inbox_store import InboxStore

    with open_inbox() as inbox, inbox.database.snapshot():
        rows = InboxStore(inbox.database, inbox.project_id)
        row = rows.get(inbox.resolve(inbox_id))
        lease = rows.lease(row.inbox_id) if inbox.database.keeps_turns else None
    facts = (
        ("inbox row", row.inbox_id),
        ("agent", row.agent_id),
        ("type", row.message_type),
        ("status", row.status),
        ("turn", f"{row.turn_id}, epoch {row.turn_epoch}"),
        ("correlation", row.correlation_id),
        ("channel", row.channel_id),
        ("tries", str(row.retry_count)),
        ("created", format_time(row.created_at)),
        ("due", format_time(row.next_retry_at)),
        ("claimed by", None if lease is None else f"{lease.owner}, until {format_time(lease.expires_at)}"),
        ("processed", format_time(row.processed_at)),
        ("closed", format_time(row.archived_at)),
        ("deferred", row.defer_reason),
        ("error", row.last_error),
        ("payload", exact_json.encode(row.payload).decode()),
        ("headers", exact_json.encode(row.context_headers).decode()),
    )
    output.emit(row, table=lambda: output.facts(*facts), ids=[row.inbox_id])


@verb(
    "claim", "cbx inbox claim --target worker_generic -o jsonl", "cbx inbox claim --wait --timeout 60 -o id"
)
def claim_rows(
    target: Annotated[
        str | None, Option(metavar="TARGET", help="Only rows of agents with this worker target.")
    ] = None,
    limit: Annotated[
        int, Option("--limit", "-n", metavar="N", min=1, max=1000, help="Claim at most N rows.")
    ] = 1,
    owner: Owner = None,
    wait: Annotated[bool, Option("--wait", help="Wait until a row is due.")] = False,
    timeout: Annotated[
        float | None, Option(click_type=Seconds(min=0), help="Wait at most this long, then exit 3.")
    ] = None,
) -> None:
    """Claim due rows under a lease (CBX_LEASE), at most one per agent. Exit 3 if no row is due."""
    from cardbox_cli.execution.queue.claims import claim

    name = _owner_name(owner)
    with runtime() as run, ExitStack() as listening:
        # Listen before the first claim, so that no notification is missed in between.
        wakeups = listening.enter_context(listener(target)) if wait else None
        claimed = claim(run, target=target, owner=name, limit=limit)
        until = math.inf if timeout is None else monotonic() + timeout
        while not claimed and wakeups is not None and (left := until - monotonic()) > 0:
            wakeups.wait(min(left, run.settings.poll))
            claimed = claim(run, target=target, owner=name, limit=limit)
    if not claimed:
        raise NotFound(f"no row is due in project {session().project_id!r}", hint="pass --wait to wait")
    rows = [each.row for each in claimed]
    output.emit_list(
        rows, columns=Shown(_CLAIMED_COLUMNS), item_id=lambda row: row.inbox_id, empty="no row is due"
    )


_CLAIMED_COLUMNS = (
    Column("INBOX", lambda row: row.inbox_id),
    Column("TYPE", lambda row: row.message_type),
    Column("AGENT", lambda row: row.agent_id),
    Column("TURN", lambda row: row.turn_id),
)


@verb("ack", "cbx inbox ack 1d5c8f72")
def ack_row(inbox: shared_options.InboxId, owner: Owner = None) -> None:
    """Mark a claimed row as done. If it carries a turn, the turn ends with success."""
    from cardbox_cli.execution.queue import claims

    _give_back(inbox, claims.ack, owner=_owner_name(owner))


@verb("fail", "cbx inbox fail 1d5c8f72 --reason 'the file is gone'", renamed={"--error": "--reason"})
def fail_row(
    inbox: shared_options.InboxId,
    reason: Annotated[str, Option(metavar="TEXT", help="The reason for the failure.")],
    owner: Owner = None,
) -> None:
    """Mark a claimed row as dead. If it carries a turn, the turn ends as failed."""
    from cardbox_cli.execution.queue import claims

    _give_back(inbox, claims.fail, owner=_owner_name(owner), error=reason)


@verb("defer", "cbx inbox defer 1d5c8f72 --reason 'the service is down' --delay 30")
def defer_row(
    inbox: shared_options.InboxId,
    reason: Annotated[str, Option(metavar="TEXT", help="The reason to try again.")],
    delay: Annotated[
        float | None,
        Option(click_type=Seconds(min=0), help="Try again after this time. Default: the backoff."),
    ] = None,
    owner: Owner = None,
) -> None:
    """Return a claimed row to the queue for a later try. After too many tries it is dead."""
    from cardbox_cli.execution.queue import claims

    wait = None if delay is None else timedelta(seconds=delay)
    _give_back(
        inbox,
        lambda run, inbox_id: claims.defer(
            run, run.inbox.get(inbox_id), owner=_owner_name(owner), reason=reason, delay=wait
        ),
    )


@verb("retry", "cbx inbox list --dead -o id | xargs -n1 cbx inbox retry")
def retry_row(inbox: shared_options.InboxId, again: shared_options.Again = False) -> None:
    """Try a dead row again. A report or a stop becomes due again; a turn is dispatched as a new turn.

    Exit 5 if another retry of the turn runs or has succeeded.
    """
    from cardbox_cli.execution.recovery.retrying import retry

    with runtime() as run:
        retried = retry(run, _resolve_row(run, inbox), source_agent_id=OPERATOR, again=again)
        if retried.dispatched is not None and retried.dispatched.result.status != "accepted":
            refuse(retried.dispatched)
        if retried.dispatched is None:
            row = retried.row
        else:
            row = run.inbox.get(retried.dispatched.result.inbox_id or "")
            remember_made(turn_id=row.turn_id)
    _print_row(row)


@verb("cancel", "cbx inbox cancel 1d5c8f72 --reason 'asked for twice'")
def cancel_row(inbox: shared_options.InboxId, reason: shared_options.OptionalReason = None) -> None:
    """Cancel the turn of a queued row before it begins."""
    from cardbox_cli.errors import Conflict
    from cardbox_cli.execution.recovery import fixes

    with runtime() as run:
        row = run.inbox.get(_resolve_row(run, inbox))
        if row.status != "queued":
            raise Conflict(
                f"the inbox row {row.inbox_id} is {row.status}, not queued",
                hint=f"to end the turn in any state: `cbx turn stop {quote_argument(row.turn_id)}`",
            )
        fixes.stop(run, row.turn_id, actor=actor(run.database), reason=reason)
        row = run.inbox.get(row.inbox_id)
    _print_row(row)
