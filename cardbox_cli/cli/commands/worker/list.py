"""`cbx worker list`."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, Shown
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.card_words import PREVIEW
from cardbox_cli.model.text.escaping import one_line
from cardbox_cli.model.text.quantities import age, count, time

if TYPE_CHECKING:
    from cardbox_cli.model.execution.turns import WorkerEntry


@verb("list", "cbx worker list", "cbx worker list --target gpu -o json", pages=True, reads=True)
def list_workers(
    target: Annotated[str | None, Option(metavar="T", help="Only those of this target.")] = None,
    all_: Annotated[bool, Option("--all", help="Also those that fell silent without signing off.")] = False,
) -> None:
    """List the workers that serve this project."""
    from cardbox_cli.store.execution.workers import WorkerStore

    with open_database() as database:
        database.require_execution()
        found = WorkerStore(database, session().project_id).all(target)
    shown = [worker for worker in found if all_ or worker.live]
    output.emit_list(
        shown,
        columns=Shown(_WORKER),
        item_id=lambda worker: worker.worker_id,
        empty=f"no workers serve project {session().project_id!r}; `cbx worker run` is one",
    )
    if len(shown) < len(found):
        announce(
            f"{count(len(found) - len(shown), 'worker')} fell silent without signing off; --all shows them"
        )


def _state(worker: "WorkerEntry") -> str:
    if not worker.live:
        return "silent"
    return "live" if worker.last_error is None else "unable"


_WORKER = (
    Column("WORKER", lambda worker: worker.worker_id),
    Column("TARGET", lambda worker: worker.worker_target),
    Column("STATE", _state),
    Column("SLOTS", lambda worker: str(worker.concurrency), right=True),
    Column("PROJECT", lambda worker: worker.project_id or "all"),
    Column("STARTED", lambda worker: time(worker.started_at) or NOTHING, spare=2),
    Column("HEARD", lambda worker: age(worker.heartbeat_at), right=True),
    Column("CANNOT WORK", lambda worker: one_line(worker.last_error or NOTHING, PREVIEW)),
)
