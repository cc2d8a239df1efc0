"""`cbx worker list`."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.describe import age, time
from cardbox_cli.cli.tree import verb


@verb(examples="cbx worker list\ncbx worker list --target gpu -o json", pages=True)
def command(
    target: Annotated[str | None, typer.Option(metavar="T", help="Only those of this target.")] = None,
) -> None:
    """List the workers that serve this project, and those that fell silent without signing off."""
    from cardbox_cli.store.workers import WorkerStore

    with session().database() as database:
        database.require_execution()
        found = WorkerStore(database, session().project_id).all(target)
    now = datetime.now(UTC)
    output.emit_list(
        found,
        columns=["WORKER", "TARGET", "STATE", "SLOTS", "PROJECT", "STARTED", "HEARD"],
        row=lambda worker: [
            worker.worker_id,
            worker.worker_target,
            "live" if worker.live else "silent",
            str(worker.concurrency),
            worker.project_id or "all",
            time(worker.started_at),
            age(worker.heartbeat_at, now),
        ],
        item_id=lambda worker: worker.worker_id,
        empty=f"no workers serve project {session().project_id!r}; `cbx worker run` is one",
    )
