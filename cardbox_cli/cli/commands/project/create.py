"""`cbx project create`."""

from cardbox_cli.cli.commands.project import project_record as record
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.cards import OPERATOR


@verb("create", "cbx project create shop --title 'The web shop'", "cbx -p shop project create")
def create_project(
    named: record.ProjectId = None, title: record.Title = None, owner: record.Owner = None
) -> None:
    """Create a project with a title and an owner. Without this, its first profile, tool or agent makes it."""
    from cardbox_cli.store.projects import ProjectsStore

    project_id = record.chosen_project(named)
    session().check_project()
    record.check_labels(title, owner)
    with open_database() as database:
        created = ProjectsStore(database).create(
            project_id,
            title=project_id if title is None else title,
            owner_id=OPERATOR if owner is None else owner,
        )
    record.emit(created, "created project")
