"""Projects in Postgres: rows of `public.projects`, and their settings.

Other stores own the data of a tenant. The first write to a project creates it with `ensure_project`. The
database of another program may lack the tables. Then cbx stores nothing, and settings have their defaults.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.model.identity import Project, ProjectSettings
from cardbox_cli.model.ids import check_new_id, new_id_fault
from cardbox_cli.store.connection.database import Database, jsonb
from cardbox_cli.store.connection.project_store import MAX_COUNTED, FurtherCount, read_pages
from cardbox_cli.store.connection.queries import decode_optional_row, decode_row, decode_rows

_TABLE = "public.projects"
_SETTINGS = "cbx.project_settings"

_GOOD_NAME = "use letters, digits and - in the value of --project or CBX_PROJECT"


def ensure_project(database: Database, project_id: str, actor: str) -> None:
    """Insert the project unless it exists. Its title is its id, and its owner is `actor`.

    Call it first in a transaction. Then two first writers wait for each other before they hold other locks.
    """
    check_first_write(database, project_id)
    if _TABLE in database.tables:
        database.run(
            "insert_project", project_id=project_id, title=project_id, status="active", owner_id=actor
        )


def check_first_write(database: Database, project_id: str) -> None:
    """Raise InvalidInput if this would be the first row of a project with an invalid name.

    Writes to an existing project with an invalid name, from another program or an older cbx, are valid.
    """
    if new_id_fault(project_id) is not None and not is_known(database, project_id):
        check_new_id(project_id, "project", _GOOD_NAME)


def is_known(database: Database, project_id: str) -> bool:
    """Return whether the database has any row of the project: its own row, cards or boxes."""
    if _TABLE in database.tables and ProjectsStore(database).find(project_id) is not None:
        return True
    return bool(database.value("project_has_rows", project_id=project_id))


def require_known(database: Database, project_id: str) -> None:
    """Raise NotFound for a project without any row."""
    if not is_known(database, project_id):
        _no_project(project_id)


class ProjectsStore:
    def __init__(self, database: Database) -> None:
        self.database = database

    def create(self, project_id: str, *, title: str, owner_id: str) -> Project:
        """Create a project. Raises Conflict if it exists, InvalidInput for an invalid name."""
        self.database.require(_TABLE)
        check_first_write(self.database, project_id)
        row = self.database.value(
            "insert_project", project_id=project_id, title=title, status="active", owner_id=owner_id
        )
        if row is None:
            hint = "change its title, status or owner with `cbx project update`"
            raise Conflict(f"project {project_id!r} already exists", hint=hint)
        return decode_row(Project, row)

    def update(
        self,
        project_id: str,
        *,
        title: str | None = None,
        status: str | None = None,
        owner_id: str | None = None,
    ) -> tuple[Project, bool]:
        """Set the fields that are not None. Returns the project and whether it changed. Raises NotFound."""
        self.database.require(_TABLE)
        row = self.database.value(
            "update_project", project_id=project_id, title=title, status=status, owner_id=owner_id
        )
        return (self.get(project_id), False) if row is None else (decode_row(Project, row), True)

    def get(self, project_id: str) -> Project:
        """Return the project with this id. Raises NotFound."""
        project = self.find(project_id)
        return _no_project(project_id) if project is None else project

    def lock(self, project_id: str) -> Project:
        """Return the project, locked against changes until the transaction ends. Raises NotFound."""
        self.database.require(_TABLE)
        self.database.value("lock_project", project_id=project_id)
        return self.get(project_id)

    def find(self, project_id: str) -> Project | None:
        self.database.require(_TABLE)
        row = self.database.value("project_by_id", project_id=project_id)
        return decode_optional_row(Project, row)

    def settings(self, project_id: str) -> ProjectSettings:
        """Return the settings of the project, or the defaults if none are stored."""
        row = None
        if _SETTINGS in self.database.tables:
            row = self.database.value("project_settings", project_id=project_id)
        return ProjectSettings() if row is None else decode_row(ProjectSettings, row)

    def configure(self, project_id: str, **changes: Any) -> bool:
        """Set the named settings. Returns whether any changed. Raises NotFound."""
        for table in (_TABLE, _SETTINGS):
            self.database.require(table)
        with self.database.transaction():
            if self.database.value("lock_project", project_id=project_id) is None:
                _no_project(project_id)
            before = self.settings(project_id)
            after = msgspec.structs.replace(before, **changes)
            if after != before:
                layers = jsonb(after.reproducible_layers)
                values = {**msgspec.structs.asdict(after), "reproducible_layers": layers}
                self.database.run("save_project_settings", project_id=project_id, **values)
        return after != before

    def list(self, *, limit: int | None = None) -> Iterator[Project]:
        """Yield the projects by id, reading page by page."""
        self.database.require(_TABLE)

        def read(after: Project | None, size: int) -> "list[Project]":
            place = None if after is None else after.project_id
            return decode_rows(Project, self.database.rows("list_projects", after=place, limit=size))

        return read_pages(read, limit=limit)

    def further(self, last: Project) -> FurtherCount:
        count = self.database.value("count_further_projects", after=last.project_id, limit=MAX_COUNTED + 1)
        return FurtherCount.cap(count, count)


def _no_project(project_id: str) -> NoReturn:
    raise NotFound(f"no project {project_id!r}", hint="`cbx project list` shows the projects")
