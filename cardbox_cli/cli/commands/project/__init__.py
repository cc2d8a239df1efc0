"""`cbx project`: the tenants of a database. Each exists by its first write; this names and lists them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import asdict

from cardbox_cli.cli.parameters.inputs import check_choice
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import PROJECT, PROJECT_DEFAULT, chosen
from cardbox_cli.cli.terminal.describe import time
from cardbox_cli.cli.terminal.lists import ColumnNames, Limit, Listing, show_list
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.errors import UsageError
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.ids import unique

if TYPE_CHECKING:
    from cardbox_cli.model.identity import Project, ProjectSettings

app = noun("Create, change, list and show projects.")

ProjectId = Annotated[
    str | None, typer.Argument(metavar="ID", help="The project. Default: that of --project.")
]
Title = Annotated[str | None, typer.Option(metavar="TEXT", help="What people call it.")]
Owner = Annotated[str | None, typer.Option(metavar="ID", help="Whose it is.")]


@app.command(
    epilog=examples("  cbx project create shop --title 'The web shop'\n  cbx -p shop project create")
)
def create(named: ProjectId = None, title: Title = None, owner: Owner = None) -> None:
    """Create a project with a title and an owner. Without this, its first profile, tool or agent makes it."""
    from cardbox_cli.store.projects import ProjectsStore

    project_id = _chosen(named)
    _check(title, owner)
    with session().database() as database:
        created = ProjectsStore(database).create(
            project_id,
            title=project_id if title is None else title,
            owner_id=OPERATOR if owner is None else owner,
        )
    _emit(created, "created project")


@app.command(
    epilog=examples(
        "  cbx project update shop --title 'The old shop' --status archived\n"
        "  cbx project update --no-share --reproducible-layers knowledge__context,todo__context\n"
        "  cbx project update --share-default"
    )
)
def update(
    named: ProjectId = None,
    title: Title = None,
    status: Annotated[
        str | None, typer.Option(metavar="active|inactive|archived", help="Its state, a word for people.")
    ] = None,
    owner: Owner = None,
    share: Annotated[
        bool | None,
        typer.Option("--share/--no-share", help="Whether contexts get the layers that are shared."),
    ] = None,
    share_default: Annotated[
        bool, typer.Option("--share-default", help="Leave that to the kind of process again.")
    ] = False,
    reproducible_layers: Annotated[
        str | None,
        typer.Option(metavar="LAYER,…", help="The layers to store with each step; '' for none."),
    ] = None,
) -> None:
    """Change what is said of a project, or how its contexts are composed. No other row of it changes."""
    from cardbox_cli.model.identity import PROJECT_STATUSES
    from cardbox_cli.store.projects import ProjectsStore

    project_id = _chosen(named)
    named_settings = _settings(share, share_default, reproducible_layers)
    if title is status is owner is None and not named_settings:
        raise UsageError("there is nothing to change", hint="`cbx project update --help` says what can be")
    _check(title, owner)
    if status is not None:
        check_choice(status, "--status", PROJECT_STATUSES, what="state")
    with session().database() as database, database.transaction():
        projects = ProjectsStore(database)
        updated, changed = projects.update(project_id, title=title, status=status, owner_id=owner)
        reset = bool(named_settings) and projects.configure(project_id, **named_settings)
        settings = projects.settings(project_id)
    _emit(updated, "updated project" if changed or reset else "unchanged: project", settings)


def _settings(share: bool | None, share_default: bool, layers: str | None) -> dict[str, Any]:
    """The settings that the options name. Raises UsageError and InvalidInput."""
    from cardbox_cli.model.layers import check_layer

    if share is not None and share_default:
        raise UsageError(
            f"--{'share' if share else 'no-share'} and --share-default say two things",
            hint="give one of them",
        )
    named: dict[str, Any] = {}
    if share is not None or share_default:
        named["enable_share_context"] = share
    if layers is not None:
        names = unique(name.strip() for name in layers.split(",") if name.strip())
        for name in names:
            check_layer(name)
        named["reproducible_layers"] = names
    return named


@app.command(
    "list",
    epilog=examples(
        "  cbx project list\n  cbx project list -o id --limit 0\n  cbx project list --columns project,updated"
    ),
)
def list_(limit: Limit = 50, columns: ColumnNames = None) -> None:
    """List the projects of the database by id."""
    from cardbox_cli.store.projects import ProjectsStore

    names = chosen(PROJECT, PROJECT_DEFAULT, columns)
    with session().database() as database:
        projects = ProjectsStore(database)
        listing = Listing(
            read=lambda size: projects.list(limit=size),
            further=projects.further,
            limit=limit,
            columns=PROJECT,
            names=names,
            item_id=lambda project: project.project_id,
            empty="no projects; `cbx project create ID`, or the first profile, tool or agent, makes one",
        )
        show_list(listing, database)


@app.command(epilog=examples("  cbx project show\n  cbx project show shop -o json"))
def show(named: ProjectId = None) -> None:
    """Show what is known of a project."""
    from cardbox_cli.store.projects import ProjectsStore

    project_id = _chosen(named)
    with session().database() as database, database.snapshot():
        projects = ProjectsStore(database)
        found, settings = projects.get(project_id), projects.settings(project_id)

    def table() -> None:
        output.facts(
            [
                ("project", found.project_id),
                ("title", found.title),
                ("status", found.status),
                ("owner", found.owner_id),
                ("created", time(found.created_at)),
                ("updated", time(found.updated_at)),
                ("share", _SHARING[settings.enable_share_context]),
                ("reproducible layers", ", ".join(settings.reproducible_layers) or "none"),
            ]
        )

    output.emit(_described(found, settings), table=table, ids=[found.project_id])


_SHARING = {True: "yes", False: "no", None: "by the kind of process"}


def _chosen(typed: str | None) -> str:
    """The project that the command is about, which then is that of the session."""
    if typed is not None:
        session().project_id = typed
    return session().project_id


def _check(title: str | None, owner: str | None) -> None:
    from cardbox_cli.model.identity import check_label

    for text, what in ((title, "title"), (owner, "owner")):
        if text is not None:
            check_label(text, what)


def _emit(project: "Project", done: str, settings: "ProjectSettings | None" = None) -> None:
    value = project if settings is None else _described(project, settings)
    output.emit(value, table=lambda: output.say(f"{done} {project.project_id}"), ids=[project.project_id])


def _described(project: "Project", settings: "ProjectSettings") -> dict[str, Any]:
    return {**asdict(project), **asdict(settings)}
