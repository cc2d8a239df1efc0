"""`cbx project update`."""

from typing import Annotated, Any

from typer import Option

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.commands.project import project_record as record
from cardbox_cli.cli.options.value_types import OneOf
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.identity import PROJECT_STATUSES
from cardbox_cli.model.ids import unique
from cardbox_cli.model.layers import KNOWLEDGE_SCOPES, check_stored_layer


@verb(
    "update",
    "cbx project update shop --title 'The old shop' --status archived",
    "cbx project update --no-share --reproducible-layers knowledge__context,todo__context",
    "cbx project update --share-default",
    "cbx project update --allow-incomplete-context --knowledge-scope boxes",
)
def update_project(
    named: record.ProjectId = None,
    title: record.Title = None,
    status: Annotated[
        str | None,
        Option(
            click_type=OneOf(lambda: PROJECT_STATUSES, what="state"),
            help="Its state. An archived project accepts no new turns; the others are words for people.",
        ),
    ] = None,
    owner: record.Owner = None,
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

    project_id = record.chosen_project(named)
    rules = {"allow_incomplete_context": allow_incomplete_context, "knowledge_scope": knowledge_scope}
    named_settings = {
        **_settings(share, share_default, reproducible_layers),
        **{name: value for name, value in rules.items() if value is not None},
    }
    if title is status is owner is None and not named_settings:
        raise UsageError("there is nothing to change", hint="`cbx project update --help` says what can be")
    record.check_labels(title, owner)
    with open_database() as database, database.transaction():
        projects = ProjectsStore(database)
        before = record.described(projects.lock(project_id), projects.settings(project_id))
        updated, _ = projects.update(project_id, title=title, status=status, owner_id=owner)
        if named_settings:
            projects.configure(project_id, **named_settings)
        settings = projects.settings(project_id)
        changes = _changes(before, record.described(updated, settings))
        if changes:
            audit(database, "project update", changes=changes)
    record.warn_of(settings)
    record.emit(updated, "updated project" if changes else "unchanged: project", settings)


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What changed, each as what it was and what it is."""
    return {
        name: {"before": before[name], "after": value}
        for name, value in after.items()
        if value != before[name] and name != "updated_at"
    }


def _settings(share: bool | None, share_default: bool, layers: str | None) -> dict[str, Any]:
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
