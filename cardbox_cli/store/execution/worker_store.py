"""Workers in Postgres: who says that it serves which target, and until when that counts."""

from datetime import timedelta

import msgspec

from cardbox_cli.model.execution.turns import WorkerEntry
from cardbox_cli.model.ids import unique
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import ProjectStore


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker announces of itself. `served_project_id` is None when it serves all projects."""

    worker_id: str
    served_project_id: str | None
    worker_target: str
    host: str
    pid: int
    concurrency: int


def announce(database: Database, worker: Announcement, *, lease: timedelta) -> None:
    """The worker lives; to be announced again before `lease` is over."""
    database.run("announce_worker", **msgspec.structs.asdict(worker), lease=lease)


def note_error(database: Database, worker_id: str, error: str | None) -> None:
    """Store why the worker cannot work; None if it can again."""
    now = database.now()
    database.run("note_worker_error", worker_id=worker_id, error=error, now=now if error else None)


def dismiss(database: Database, worker_id: str) -> None:
    """The worker leaves."""
    database.run("dismiss_worker", worker_id=worker_id)


def forget_dead(database: Database) -> int:
    """Remove workers that nobody heard of for a day; how many."""
    return database.run("forget_dead_workers")


def due_projects(database: Database, target: str) -> list[str]:
    """The projects that have due work for a target."""
    return database.column("due_projects", target=target)


def unsettled_projects(database: Database, target: str) -> list[str]:
    """The projects where something of a target is open: due, claimed, queued, or suspended; or a batch is."""
    found = database.column("unsettled_projects", target=target)
    batches = database.column("projects_with_open_batches") if database.keeps_batches else []
    return unique([*found, *batches])


class WorkerStore(ProjectStore):
    """The workers that serve one project."""

    def all(self, target: str | None = None) -> list[WorkerEntry]:
        """Those of one target if it is named, dead ones that are not forgotten yet too."""
        return self._all(WorkerEntry, "workers", target=target)
