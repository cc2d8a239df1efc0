"""`cbx project show`."""

from cardbox_cli.cli.commands.project.project_record import (
    ProjectId,
    chosen_project,
    described,
    warn_of,
)
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.text.quantities import time


@verb("show", "cbx project show", "cbx project show shop -o json", pages=True, reads=True)
def show_project(named: ProjectId = None) -> None:
    """Show what is known of a project."""
    from cardbox_cli.store.projects import ProjectsStore

    project_id = chosen_project(named)
    with open_database() as database, database.snapshot():
        projects = ProjectsStore(database)
        found, settings = projects.get(project_id), projects.settings(project_id)

    def table() -> None:
        output.facts(
            ("project", found.project_id),
            ("title", found.title),
            ("status", found.status),
            ("owner", found.owner_id),
            ("created", time(found.created_at)),
            ("updated", time(found.updated_at)),
            ("share", _SHARING[settings.enable_share_context]),
            ("reproducible layers", ", ".join(settings.stored_layers) or "none"),
            ("incomplete contexts", "are run" if settings.allow_incomplete_context else "fail"),
            ("knowledge scope", settings.knowledge_scope),
        )

    warn_of(settings)
    output.emit(described(found, settings), table=table, ids=[found.project_id])


_SHARING = {True: "yes", False: "no", None: "by the kind of process"}
