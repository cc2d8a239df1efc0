"""How the verbs of `cbx project` name a project, check its labels, and print it."""

from typing import Annotated, Any

from msgspec.structs import asdict
from typer import Argument, Option

from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.model.identity import Project, ProjectSettings, check_label

ProjectId = Annotated[str | None, Argument(metavar="ID", help="The project. Default: that of --project.")]
Title = Annotated[str | None, Option(metavar="TEXT", help="What people call it.")]
Owner = Annotated[str | None, Option(metavar="ID", help="Whose it is.")]


def chosen_project(given: str | None) -> str:
    """The project that the command is about, which then is that of the session."""
    if given is not None:
        session().project_id = given
    return session().project_id


def check_labels(title: str | None, owner: str | None) -> None:
    for text, what in ((title, "title"), (owner, "owner")):
        if text is not None:
            check_label(text, what)


def emit(project: Project, done: str, settings: ProjectSettings | None = None) -> None:
    value = project if settings is None else described(project, settings)
    output.emit(
        value, table=lambda: output.print_text(f"{done} {project.project_id}"), ids=[project.project_id]
    )


def warn_of(settings: ProjectSettings) -> None:
    """Say what of the stored settings counts for nothing."""
    for name in settings.reproducible_layers:
        if name not in settings.stored_layers:
            announce(
                f"warning: the stored reproducible layers name {name}, which is never stored and counts for "
                "nothing; `cbx project update --reproducible-layers` names them anew"
            )


def described(project: Project, settings: ProjectSettings) -> dict[str, Any]:
    return {**asdict(project), **asdict(settings)}
