"""`cbx worker list`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.describe import age, time
from cardbox_cli.cli.terminal.shown import Shown
from cardbox_cli.cli.terminal.tables import NOTHING, Column
from cardbox_cli.cli.verb import verb


@verb("cbx worker list", "cbx worker list --target gpu -o json", pages=True)
def command(
    target: Annotated[str | None, Option(metavar="T", help="Only those of this target.")] = None,
) -> None:
    """List the workers that serve this project, and those that fell silent without signing off."""
    from cardbox_cli.store.workers import WorkerStore

    with session().database() as database:
        database.require_execution()
        found = WorkerStore(database, session().project_id).all(target)
    output.emit_list(
        found,
        columns=Shown(_WORKER),
        item_id=lambda worker: worker.worker_id,
        empty=f"no workers serve project {session().project_id!r}; `cbx worker run` is one",
    )


_WORKER = (
    Column("WORKER", lambda worker: worker.worker_id),
    Column("TARGET", lambda worker: worker.worker_target),
    Column("STATE", lambda worker: "live" if worker.live else "silent"),
    Column("SLOTS", lambda worker: str(worker.concurrency), right=True),
    Column("PROJECT", lambda worker: worker.project_id or "all"),
    Column("STARTED", lambda worker: time(worker.started_at) or NOTHING, spare=2),
    Column("HEARD", lambda worker: age(worker.heartbeat_at), right=True),
)
