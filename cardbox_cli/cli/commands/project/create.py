"""`cbx project create`."""

from cardbox_cli.cli.commands.project.project_record import (
    Owner,
    ProjectId,
    Title,
    check_labels,
    chosen_project,
    emit,
)
from cardbox_cli.cli.session import session
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.cards import OPERATOR


@verb(examples="cbx project create shop --title 'The web shop'\ncbx -p shop project create")
def command(named: ProjectId = None, title: Title = None, owner: Owner = None) -> None:
    """Create a project with a title and an owner. Without this, its first profile, tool or agent makes it."""
    from cardbox_cli.store.projects import ProjectsStore

    project_id = chosen_project(named)
    check_labels(title, owner)
    with session().database() as database:
        created = ProjectsStore(database).create(
            project_id,
            title=project_id if title is None else title,
            owner_id=OPERATOR if owner is None else owner,
        )
    emit(created, "created project")
