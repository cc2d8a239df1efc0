"""`cbx inbox claim`."""

import math
from contextlib import ExitStack
from time import monotonic
from typing import Annotated

from typer import Option

from cardbox_cli.cli.command_runtime import listener, runtime
from cardbox_cli.cli.commands.inbox.claimed import Owner, owner_name
from cardbox_cli.cli.options.value_types import Seconds
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, Shown
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound


@verb(
    "claim", "cbx inbox claim --target worker_generic -o jsonl", "cbx inbox claim --wait --timeout 60 -o id"
)
def claim_rows(
    target: Annotated[
        str | None, Option(metavar="T", help="Only rows of agents of this worker target.")
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, max=1000, help="At most so many rows.")] = 1,
    owner: Owner = None,
    wait: Annotated[bool, Option("--wait", help="Wait until there is work.")] = False,
    timeout: Annotated[
        float | None, Option(click_type=Seconds(min=0), help="Wait for so many seconds at most; then exit 3.")
    ] = None,
) -> None:
    """Claim due rows for the time of a lease (CBX_LEASE), one of each agent. Exit 3 without work."""
    from cardbox_cli.execution.queue.claims import claim

    name = owner_name(owner)
    with runtime() as run, ExitStack() as listening:
        # Listening begins before the first look, so that nothing can come between the two.
        wakeups = listening.enter_context(listener(target)) if wait else None
        claimed = claim(run, target=target, owner=name, limit=limit)
        until = math.inf if timeout is None else monotonic() + timeout
        while not claimed and wakeups is not None and (left := until - monotonic()) > 0:
            wakeups.wait(min(left, run.settings.poll))
            claimed = claim(run, target=target, owner=name, limit=limit)
    if not claimed:
        raise NotFound(f"no work is due in project {session().project_id!r}", hint="--wait waits for it")
    rows = [each.row for each in claimed]
    output.emit_list(rows, columns=Shown(_ROW), item_id=lambda row: row.inbox_id, empty="no work is due")


_ROW = (
    Column("INBOX", lambda row: row.inbox_id),
    Column("TYPE", lambda row: row.message_type),
    Column("AGENT", lambda row: row.agent_id),
    Column("TURN", lambda row: row.turn_id),
)
