"""`cbx project`: the projects (tenants) of a database. A project exists from its first write."""

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
from cardbox_cli.cli.terminal.table_layout import choose_columns
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.identity import PROJECT_STATUSES, Project, ProjectSettings, check_label
from cardbox_cli.model.ids import unique
from cardbox_cli.model.layers import KNOWLEDGE_SCOPES, check_stored_layer
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.times import format_time

ProjectId = Annotated[
    str | None, Argument(metavar="ID", help="The project. Default: the value of --project.")
]
Title = Annotated[str | None, Option(metavar="TEXT", help="A title.")]
Owner = Annotated[str | None, Option(metavar="ID", help="The owner.")]


def _choose_project(given: str | None) -> str:
    """Return the project of the command, and make it the project of the session."""
    if given is not None:
        session().project_id = given
    return session().project_id


def _check_labels(title: str | None, owner: str | None) -> None:
    for text, what in ((title, "title"), (owner, "owner")):
        if text is not None:
            check_label(text, what)


def _emit_project(project: Project, done: str, settings: ProjectSettings | None = None) -> None:
    value = project if settings is None else _project_json(project, settings)
    output.emit(
        value, table=lambda: output.print_text(f"{done} {project.project_id}"), ids=[project.project_id]
    )


def _announce_unused_settings(settings: ProjectSettings) -> None:
    for name in settings.reproducible_layers:
        if name not in settings.stored_layers:
            announce(
                f"warning: reproducible layer {name} has no effect, because it is never stored; "
                "set the layers again with `cbx project update --reproducible-layers NAMES`"
            )


def _project_json(project: Project, settings: ProjectSettings) -> dict[str, Any]:
    return {**asdict(project), **asdict(settings)}


@verb("create", "cbx project create shop --title 'The web shop'", "cbx -p shop project create")
def create_project(named: ProjectId = None, title: Title = None, owner: Owner = None) -> None:
    """Create a project with a title and an owner. Its first profile, tool or agent creates it, too."""
    from cardbox_cli.store.projects import ProjectsStore

    project_id = _choose_project(named)
    session().check_project()
    _check_labels(title, owner)
    with open_database() as database:
        created = ProjectsStore(database).create(
            project_id,
            title=project_id if title is None else title,
            owner_id=OPERATOR if owner is None else owner,
        )
    _emit_project(created, "created project")


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
            help="The state. An archived project accepts no new turns; other states have no effect.",
        ),
    ] = None,
    owner: Owner = None,
    share: Annotated[
        bool | None, Option("--share/--no-share", help="Include shared layers in contexts, or not.")
    ] = None,
    share_default: Annotated[
        bool, Option("--share-default", help="Let the process type decide whether to include shared layers.")
    ] = False,
    reproducible_layers: Annotated[
        str | None, Option(metavar="LAYER,…", help="The layers to store with each step; '' for none.")
    ] = None,
    allow_incomplete_context: Annotated[
        bool | None,
        Option(
            "--allow-incomplete-context/--no-allow-incomplete-context",
            help="Run or refuse turns whose context or profile lacks cards.",
        ),
    ] = None,
    knowledge_scope: Annotated[
        str | None,
        Option(
            click_type=OneOf(lambda: KNOWLEDGE_SCOPES, what="scope"),
            help="The cards that the knowledge layer searches: the whole project, the boxes of the recipe or "
            "profile, or none.",
        ),
    ] = None,
) -> None:
    """Change a project's title, owner, state or composing rules."""
    from cardbox_cli.store.projects import ProjectsStore

    project_id = _choose_project(named)
    rules = {"allow_incomplete_context": allow_incomplete_context, "knowledge_scope": knowledge_scope}
    new_settings = {
        **_parse_settings(share, share_default, reproducible_layers),
        **{name: value for name, value in rules.items() if value is not None},
    }
    if title is status is owner is None and not new_settings:
        raise UsageError("no change given", hint="pass at least one option; see `cbx project update --help`")
    _check_labels(title, owner)
    with open_database() as database, database.transaction():
        projects = ProjectsStore(database)
        before = _project_json(projects.lock(project_id), projects.settings(project_id))
        updated, _ = projects.update(project_id, title=title, status=status, owner_id=owner)
        if new_settings:
            projects.configure(project_id, **new_settings)
        settings = projects.settings(project_id)
        after = _project_json(updated, settings)
        changes = {
            name: {"before": before[name], "after": value}
            for name, value in after.items()
            if value != before[name] and name != "updated_at"
        }
        if changes:
            audit(database, "project update", changes=changes)
    _announce_unused_settings(settings)
    _emit_project(updated, "updated project" if changes else "unchanged: project", settings)


def _parse_settings(share: bool | None, share_default: bool, layers: str | None) -> dict[str, Any]:
    """Return the settings of the options. Raises UsageError and InvalidInput."""
    if share is not None and share_default:
        raise UsageError(
            conflict_message(f"--{'share' if share else 'no-share'}", "--share-default"),
            hint="remove one of them",
        )
    settings: dict[str, Any] = {}
    if share is not None or share_default:
        settings["enable_share_context"] = share
    if layers is not None:
        names = unique(name.strip() for name in layers.split(",") if name.strip())
        for name in names:
            check_stored_layer(name)
        settings["reproducible_layers"] = names
    return settings


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
    """List the projects of the database, sorted by id."""
    from cardbox_cli.store.projects import ProjectsStore

    shown = choose_columns(PROJECT_COLUMNS, columns)
    with open_database() as database:
        projects = ProjectsStore(database)
        listing = Listing(
            lambda size: projects.list(limit=size),
            projects.further,
            limit,
            shown,
            item_id=lambda project: project.project_id,
            empty="no projects; create one with `cbx project create ID`",
        )
        show_list(listing, database)


@verb("show", "cbx project show", "cbx project show shop -o json", pages=True, reads=True)
def show_project(named: ProjectId = None) -> None:
    """Show a project and its settings."""
    from cardbox_cli.store.projects import ProjectsStore

    project_id = _choose_project(named)
    with open_database() as database, database.snapshot():
        projects = ProjectsStore(database)
        project, settings = projects.get(project_id), projects.settings(project_id)

    def table() -> None:
        output.facts(
            ("project", project.project_id),
            ("title", project.title),
            ("status", project.status),
            ("owner", project.owner_id),
            ("created", format_time(project.created_at)),
            ("updated", format_time(project.updated_at)),
            ("share", _SHARING_TEXTS[settings.enable_share_context]),
            ("reproducible layers", ", ".join(settings.stored_layers) or "none"),
            ("incomplete contexts", "are run" if settings.allow_incomplete_context else "fail"),
            ("knowledge scope", settings.knowledge_scope),
        )

    _announce_unused_settings(settings)
    output.emit(_project_json(project, settings), table=table, ids=[project.project_id])


_SHARING_TEXTS = {True: "yes", False: "no", None: "by the type of process"}
