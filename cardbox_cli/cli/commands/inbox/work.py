"""The verbs of `cbx inbox` that work: a script claims rows, and gives each back done, deferred or dead."""

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.parameters.inputs import check_seconds
from cardbox_cli.cli.parameters.options import InboxId, OptionalReason
from cardbox_cli.cli.runtime import actor, listener, runtime
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.tree import examples
from cardbox_cli.errors import NotFound
from cardbox_cli.model.cards import OPERATOR

if TYPE_CHECKING:
    from cardbox_cli.execution.queue.claims import Claimed
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.model.execution.turns import InboxRow

Owner = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who claims. Default: CBX_OWNER, else this host and its user."),
]


def add_to(app: typer.Typer) -> None:
    """Make these verbs commands of `cbx inbox`."""
    for verb, example in _EXAMPLES.items():
        app.command(verb.__name__, epilog=examples(example))(verb)


def claim(
    target: Annotated[
        str | None, typer.Option(metavar="T", help="Only rows of agents of this worker target.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many rows.")] = 1,
    owner: Owner = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until there is work.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S", min=0, callback=check_seconds, help="Wait for so many seconds at most; then exit 3."
        ),
    ] = None,
) -> None:
    """Claim due rows for the time of a lease (CBX_LEASE, 60 s), one of each agent. Exit 3 without work."""
    from cardbox_cli.execution.queue.claims import claim as claim_rows

    name = _owner(owner)
    with runtime() as run, ExitStack() as listening:
        # Listening begins before the first look, so that nothing can come between the two.
        doorbell = listening.enter_context(listener(target)) if wait else None
        claimed = claim_rows(run, target=target, owner=name, limit=limit)
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not claimed and doorbell is not None and (left := until - time.monotonic()) > 0:
            doorbell.wait(min(left, run.settings.poll))
            claimed = claim_rows(run, target=target, owner=name, limit=limit)
    if not claimed:
        raise NotFound(
            f"no work is due in project {session().project_id!r}",
            hint="--wait waits for it",
        )
    _print(claimed)


def ack(inbox: InboxId, owner: Owner = None) -> None:
    """Give a claimed row back as done. If it carries a turn, the turn ends with success."""
    from cardbox_cli.execution.queue import claims

    _give_back(inbox, lambda run, inbox_id: claims.ack(run, inbox_id, owner=_owner(owner)))


def fail(
    inbox: InboxId,
    error: Annotated[str, typer.Option(metavar="TEXT", help="Why it cannot be done.")],
    owner: Owner = None,
) -> None:
    """Give a claimed row back as dead. If it carries a turn, the turn ends as failed."""
    from cardbox_cli.execution.queue import claims

    _give_back(inbox, lambda run, inbox_id: claims.fail(run, inbox_id, owner=_owner(owner), error=error))


def defer(
    inbox: InboxId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why it is to be tried again.")],
    delay: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=0,
            callback=check_seconds,
            help="Try again in so many seconds. Default: the backoff.",
        ),
    ] = None,
    owner: Owner = None,
) -> None:
    """Give a claimed row back, to be tried again later; after too many tries it is dead."""
    from cardbox_cli.execution.queue import claims

    wait = None if delay is None else timedelta(seconds=delay)
    _give_back(
        inbox,
        lambda run, inbox_id: claims.defer(
            run, run.inbox.get(inbox_id), owner=_owner(owner), reason=reason, delay=wait
        ),
    )


def retry(inbox: InboxId) -> None:
    """Try a dead row again: a report or a stop becomes due, a turn is dispatched anew as another turn."""
    from cardbox_cli.cli.commands.dispatch import refuse
    from cardbox_cli.execution.recovery.retrying import retry as retry_row

    with runtime() as run:
        retried = retry_row(run, _resolve(run, inbox), source_agent_id=OPERATOR)
        if retried.dispatched is not None and retried.dispatched.result.status != "accepted":
            refuse(retried.dispatched)
        if retried.dispatched is None:
            row = retried.row
        else:
            row = run.inbox.get(retried.dispatched.result.inbox_id or "")
            session().made(turn_id=row.turn_id)
    _print_row(row)


def cancel(inbox: InboxId, reason: OptionalReason = None) -> None:
    """End the turn of a queued row before it begins, as canceled."""
    from cardbox_cli.errors import Conflict
    from cardbox_cli.execution.recovery import fixes

    with runtime() as run:
        row = run.inbox.get(_resolve(run, inbox))
        if row.status != "queued":
            raise Conflict(
                f"the inbox row {row.inbox_id} is {row.status}, not queued",
                hint=f"`cbx turn stop {row.turn_id}` ends a turn in any state",
            )
        fixes.stop(run, row.turn_id, actor=actor(), reason=reason)
        row = run.inbox.get(row.inbox_id)
    _print_row(row)


def _give_back(inbox: str, do: "Callable[[Runtime, str], object]") -> None:
    with runtime() as run:
        inbox_id = _resolve(run, inbox)
        do(run, inbox_id)
        row = run.inbox.get(inbox_id)
    _print_row(row)


def _resolve(run: "Runtime", typed: str) -> str:
    from cardbox_cli.store.views.inbox import InboxViews

    return InboxViews(run.database, run.project_id).resolve(typed)


def _owner(named: str | None) -> str:
    return named or os.environ.get("CBX_OWNER") or f"shell {actor()}"


def _print(claimed: "list[Claimed]") -> None:
    output.emit_list(
        [each.row for each in claimed],
        columns=["INBOX", "TYPE", "AGENT", "TURN"],
        row=lambda row: [row.inbox_id, row.message_type, row.agent_id, row.turn_id],
        item_id=lambda row: row.inbox_id,
        empty="no work is due",
    )


def _print_row(row: "InboxRow") -> None:
    output.emit(
        row,
        table=lambda: output.facts(
            [
                ("inbox row", row.inbox_id),
                ("turn", row.turn_id),
                ("status", row.status),
                ("tries", str(row.retry_count)),
                ("error", row.last_error),
            ]
        ),
        ids=[row.inbox_id],
    )


_EXAMPLES: dict[Callable[..., None], str] = {
    claim: "  cbx inbox claim --target worker_generic -o jsonl\n  cbx inbox claim --wait --timeout 60 -o id",
    ack: "  cbx inbox ack 1d5c8f72",
    fail: "  cbx inbox fail 1d5c8f72 --error 'the file is gone'",
    defer: "  cbx inbox defer 1d5c8f72 --reason 'the service is down' --delay 30",
    retry: "  cbx inbox list --dead -o id | xargs -n1 cbx inbox retry",
    cancel: "  cbx inbox cancel 1d5c8f72 --reason 'asked for twice'",
}
