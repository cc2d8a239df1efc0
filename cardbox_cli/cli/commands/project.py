"""`cbx project`: the tenants of a database. Each exists from its first write; this names and lists them."""

from typing import Annotated, Any

from msgspec.structs import asdict
from typer import Argument, Option

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.options.shared_options import Limit, column_option
from cardbox_cli.cli.options.value_types import OneOf
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import PROJECT_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, show_list
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.identity import PROJECT_STATUSES, Project, ProjectSettings, check_label
from cardbox_cli.model.ids import unique
from cardbox_cli.model.layers import KNOWLEDGE_SCOPES, check_stored_layer
from cardbox_cli.text import format_time

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


def emit_project(project: Project, done: str, settings: ProjectSettings | None = None) -> None:
    value = project if settings is None else project_facts(project, settings)
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


def project_facts(project: Project, settings: ProjectSettings) -> dict[str, Any]:
    return {**asdict(project), **asdict(settings)}


@verb("create", "cbx project create shop --title 'The web shop'", "cbx -p shop project create")
def create_project(named: ProjectId = None, title: Title = None, owner: Owner = None) -> None:
    """Create a project with a title and an owner. Without this, its first profile, tool or agent makes it."""
    from cardbox_cli.store.projects import ProjectsStore

    project_id = chosen_project(named)
    session().check_project()
    check_labels(title, owner)
    with open_database() as database:
        created = ProjectsStore(database).create(
            project_id,
            title=project_id if title is None else title,
            owner_id=OPERATOR if owner is None else owner,
        )
    emit_project(created, "created project")


@verb(
    "update",
    "cbx project update shop --title 'The old shop' --status archived",
    "cbx project update --no-share --reproducible-layers knowledge__context,todo__context",
    "cbx project update --share-default",
    "cbx project update --allow-incomplete-context --knowledge-scope boxes",
)
def update_project(
    named: ProjectId = None,
    title: Title = None,
    status: Annotated[
        str | None,
        Option(
            click_type=OneOf(lambda: PROJECT_STATUSES, what="state"),
            help="Its state. An archived project accepts no new turns; the others are words for people.",
        ),
    ] = None,
    owner: Owner = None,
    share: Annotated[
        bool | None, Option("--share/--no-share", help="Whether contexts get the layers that are shared.")
    ] = None,
    share_default: Annotated[
        bool, Option("--share-default", help="Leave that to the kind of process again.")
    ] = False,
    reproducible_layers: Annotated[
        str | None, Option(metavar="LAYER,…", help="The layers to store with each step; '' for none.")
    ] = None,
    allow_incomplete_context: Annotated[
        bool | None,
        Option(
            "--allow-incomplete-context/--no-allow-incomplete-context",
            help="Whether turns run although cards of their contexts or profiles are gone.",
        ),
    ] = None,
    knowledge_scope: Annotated[
        str | None,
        Option(
            click_type=OneOf(lambda: KNOWLEDGE_SCOPES, what="scope"),
            help="Where knowledge is looked for: in all cards of the project, in those of boxes that the "
            "recipe or the profile names, or nowhere.",
        ),
    ] = None,
) -> None:
    """Change a project, or how its contexts are composed. No other row of it changes."""
    from cardbox_cli.store.projects import ProjectsStore

    project_id = chosen_project(named)
    rules = {"allow_incomplete_context": allow_incomplete_context, "knowledge_scope": knowledge_scope}
    named_settings = {
        **_changed_settings(share, share_default, reproducible_layers),
        **{name: value for name, value in rules.items() if value is not None},
    }
    if title is status is owner is None and not named_settings:
        raise UsageError("there is nothing to change", hint="`cbx project update --help` says what can be")
    check_labels(title, owner)
    with open_database() as database, database.transaction():
        projects = ProjectsStore(database)
        before = project_facts(projects.lock(project_id), projects.settings(project_id))
        updated, _ = projects.update(project_id, title=title, status=status, owner_id=owner)
        if named_settings:
            projects.configure(project_id, **named_settings)
        settings = projects.settings(project_id)
        changes = _changes(before, project_facts(updated, settings))
        if changes:
            audit(database, "project update", changes=changes)
    warn_of(settings)
    emit_project(updated, "updated project" if changes else "unchanged: project", settings)


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What changed, each as what it was and what it is."""
    return {
        name: {"before": before[name], "after": value}
        for name, value in after.items()
        if value != before[name] and name != "updated_at"
    }


def _changed_settings(share: bool | None, share_default: bool, layers: str | None) -> dict[str, Any]:
    """The settings that the options name. Raises UsageError and InvalidInput."""
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
            check_stored_layer(name)
        named["reproducible_layers"] = names
    return named


@verb(
    "list",
    "cbx project list",
    "cbx project list -o id --limit 0",
    "cbx project list --columns project,updated",
    pages=True,
    reads=True,
)
def list_projects(
    limit: Limit = 50, columns: Annotated[str | None, column_option("project,status,title")] = None
) -> None:
    """List the projects of the database by id."""
    from cardbox_cli.store.projects import ProjectsStore

    shown = chosen(PROJECT_COLUMNS, columns)
    with open_database() as database:
        projects = ProjectsStore(database)
        listing = Listing(
            lambda size: projects.list(limit=size),
            projects.further,
            limit,
            shown,
            item_id=lambda project: project.project_id,
            empty="no projects; `cbx project create ID`, or the first profile, tool or agent, makes one",
        )
        show_list(listing, database)


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
            ("created", format_time(found.created_at)),
            ("updated", format_time(found.updated_at)),
            ("share", _SHARING_TEXTS[settings.enable_share_context]),
            ("reproducible layers", ", ".join(settings.stored_layers) or "none"),
            ("incomplete contexts", "are run" if settings.allow_incomplete_context else "fail"),
            ("knowledge scope", settings.knowledge_scope),
        )

    warn_of(settings)
    output.emit(project_facts(found, settings), table=table, ids=[found.project_id])


_SHARING_TEXTS = {True: "yes", False: "no", None: "by the kind of process"}
