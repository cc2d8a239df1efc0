"""Workers in Postgres: the target that each serves, and the time until which it counts as alive."""

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from cardbox_cli.model.execution.turns import WorkerEntry
from cardbox_cli.model.ids import unique
from cardbox_cli.process_identity import is_dead
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import ProjectStore


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """Announcement of a worker. `served_project_id` is None if it serves all projects."""

    worker_id: str
    served_project_id: str | None
    worker_target: str
    host: str
    pid: int
    concurrency: int


def record_worker(database: Database, worker: Announcement, *, lease: timedelta) -> None:
    """Record that the worker is alive. It must announce itself again within `lease`."""
    database.run("announce_worker", **msgspec.structs.asdict(worker), lease=lease)


def note_error(database: Database, worker_id: str, error: str | None) -> None:
    """Record the reason why the worker cannot work. None means that it can work again."""
    now = database.now()
    database.run("note_worker_error", worker_id=worker_id, error=error, now=now if error else None)


def remove_worker(database: Database, worker_id: str) -> None:
    database.run("dismiss_worker", worker_id=worker_id)


def remove_dead_workers(database: Database) -> int:
    """Remove workers that have not announced themselves for a day. Returns their number."""
    return database.run("forget_dead_workers")


def due_projects(database: Database, target: str) -> list[str]:
    return database.column("due_projects", target=target)


def unsettled_projects(database: Database, target: str) -> list[str]:
    """Return the projects with open rows or active turns of a target, or with an open batch."""
    projects = database.column("unsettled_projects", target=target)
    batches = database.column("projects_with_open_batches") if database.keeps_batches else []
    return unique([*projects, *batches])


def mark_dead_processes(workers: Iterable[WorkerEntry]) -> list[WorkerEntry]:
    """Return the workers. Those whose process has ended on this machine are not live."""
    replace = msgspec.structs.replace
    return [replace(each, live=False) if is_dead(each.worker_id) else each for each in workers]


class WorkerStore(ProjectStore):
    def all(self, target: str | None = None) -> list[WorkerEntry]:
        """Return the workers that serve this project, of one target if given. Includes dead workers."""
        return mark_dead_processes(self._all(WorkerEntry, "workers", target=target))
