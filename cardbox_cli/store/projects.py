"""Projects in Postgres: what `public.projects` says of tenants, and their settings.

What else belongs to a tenant is the other stores' affair. A project exists by its first write;
`ensure_project` is what that write calls. A database that another program made may lack the tables: then
nothing is kept of projects, and their settings are the defaults.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.model.identity import Project, ProjectSettings
from cardbox_cli.model.ids import check_new_id, fault_of_new_id
from cardbox_cli.store.connection.database import Database, jsonb
from cardbox_cli.store.connection.project_store import COUNTED, Further, paged
from cardbox_cli.store.connection.queries import all_decoded, decoded, decoded_or_none

_TABLE = "public.projects"
_SETTINGS = "cbx.project_settings"

_GOOD_NAME = "letters, digits and - are good; --project or CBX_PROJECT names it"


def ensure_project(database: Database, project_id: str, actor: str) -> None:
    """Make the project's row, titled by its id and owned by `actor`, unless it is there.

    Call it first in a transaction: two first writers wait for each other here, and hold nothing else yet.
    """
    check_first_write(database, project_id)
    if _TABLE in database.tables:
        database.run(
            "insert_project", project_id=project_id, title=project_id, status="active", owner_id=actor
        )


def check_first_write(database: Database, project_id: str) -> None:
    """Raise InvalidInput where this would be the first row of a project of whose name cbx makes nothing.

    Projects that other programs, or an older cbx, named so are written to as any other.
    """
    if fault_of_new_id(project_id) is not None and not is_known(database, project_id):
        check_new_id(
            project_id, "project", "letters, digits and - are good; --project or CBX_PROJECT names it"
        )


def is_known(database: Database, project_id: str) -> bool:
    """Whether the database holds anything of the project: its own row, cards or boxes."""
    if _TABLE in database.tables and ProjectsStore(database).find(project_id) is not None:
        return True
    return bool(database.value("project_has_rows", project_id=project_id))


def require_known(database: Database, project_id: str) -> None:
    """Raise NotFound for a project of which the database holds nothing."""
    if not is_known(database, project_id):
        _no_project(project_id)


class ProjectsStore:
    """All projects of a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def create(self, project_id: str, *, title: str, owner_id: str) -> Project:
        """Make a project. Raises Conflict when it exists, InvalidInput for a name that no new one has."""
        self.database.require(_TABLE)
        check_first_write(self.database, project_id)
        row = self.database.value(
            "insert_project", project_id=project_id, title=title, status="active", owner_id=owner_id
        )
        if row is None:
            hint = "`cbx project update` changes its title, status and owner"
            raise Conflict(f"the project {project_id!r} exists", hint=hint)
        return decoded(Project, row)

    def update(
        self,
        project_id: str,
        *,
        title: str | None = None,
        status: str | None = None,
        owner_id: str | None = None,
    ) -> tuple[Project, bool]:
        """Set what is not None; the project, and whether that changed it. Raises NotFound."""
        self.database.require(_TABLE)
        row = self.database.value(
            "update_project", project_id=project_id, title=title, status=status, owner_id=owner_id
        )
        return (self.get(project_id), False) if row is None else (decoded(Project, row), True)

    def get(self, project_id: str) -> Project:
        """The project of this id. Raises NotFound."""
        project = self.find(project_id)
        return _no_project(project_id) if project is None else project

    def lock(self, project_id: str) -> Project:
        """The project of this id, which nobody else changes until the transaction ends. Raises NotFound."""
        self.database.require(_TABLE)
        self.database.value("lock_project", project_id=project_id)
        return self.get(project_id)

    def find(self, project_id: str) -> Project | None:
        """The project of this id, or None."""
        self.database.require(_TABLE)
        row = self.database.value("project_by_id", project_id=project_id)
        return decoded_or_none(Project, row)

    def settings(self, project_id: str) -> ProjectSettings:
        """The settings of the project; the defaults where nothing is kept of it."""
        row = None
        if _SETTINGS in self.database.tables:
            row = self.database.value("project_settings", project_id=project_id)
        return ProjectSettings() if row is None else decoded(ProjectSettings, row)

    def configure(self, project_id: str, **changes: Any) -> bool:
        """Set the settings that are named; whether that changed any. Raises NotFound."""
        for table in (_TABLE, _SETTINGS):
            self.database.require(table)
        with self.database.transaction():
            if self.database.value("lock_project", project_id=project_id) is None:
                _no_project(project_id)
            before = self.settings(project_id)
            after = msgspec.structs.replace(before, **changes)
            if after != before:
                self._save(project_id, after)
        return after != before

    def _save(self, project_id: str, settings: ProjectSettings) -> None:
        self.database.run(
            "save_project_settings",
            project_id=project_id,
            enable_share_context=settings.enable_share_context,
            reproducible_layers=jsonb(settings.reproducible_layers),
            allow_incomplete_context=settings.allow_incomplete_context,
            knowledge_scope=settings.knowledge_scope,
        )

    def list(self, *, limit: int | None = None) -> Iterator[Project]:
        """Projects by id, page by page."""
        self.database.require(_TABLE)

        def read(after: Project | None, size: int) -> "list[Project]":
            place = None if after is None else after.project_id
            return all_decoded(Project, self.database.rows("list_projects", after=place, limit=size))

        return paged(read, limit=limit)

    def further(self, last: Project) -> Further:
        """How many projects `list` would give after `last`. Counts up to 10,000."""
        found = self.database.value("count_further_projects", after=last.project_id, limit=COUNTED + 1)
        return Further.counted(found, found)


def _no_project(project_id: str) -> NoReturn:
    raise NotFound(
        f"no project {project_id!r}",
        hint="`cbx project list` shows them; `cbx project create`, or the first profile, tool or "
        "agent, makes one",
    )
