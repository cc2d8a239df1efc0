"""`cbx profile`: the static configurations of agents, by name."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Argument

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.input_files import combine_failures, read_text, source_name
from cardbox_cli.cli.options.shared_options import Limit, column_option
from cardbox_cli.cli.options.value_types import FILE, PROFILE
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import PROFILE_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, empty_project_note, list_in_memory, show_list
from cardbox_cli.cli.terminal.table_layout import Column, choose_columns, print_table
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import CbxError, InvalidInput, NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.store.profiles import ProfileStore

ProfileFiles = Annotated[
    list[str], Argument(click_type=FILE, help="YAML files with one profile each; - for stdin.")
]


@verb("import", "cbx profile import researcher.yaml", "cbx profile import - < researcher.yaml")
def import_profiles(
    files: ProfileFiles,
) -> None:
    """Store profiles from YAML files. An existing name then refers to the new version; old boxes stay.

    A profile that did not change creates no new box.
    """
    from cardbox_cli.model.handwritten.profiles import parse_profile
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.profiles import ProfileStore
    from cardbox_cli.store.tools import ToolStore

    profiles = [parse_profile(read_text(file), source_name(file)) for file in files]
    with open_database() as database:
        store = ProfileStore(database, session().project_id)
        tools = ToolStore(database, session().project_id).names()
        for profile in profiles:
            _announce_warnings(profile, f"profile {profile['name']!r}", tools)
        with database.transaction():
            imported = [_save_profile(store, profile) for profile in profiles]
        newest = BoxStore(database, session().project_id).get(imported[-1].profile_box_id)
        # Not its box: a person means a conversation by `@last`, which only a command for boxes makes.
        remember_made(card_id=newest.card_ids[-1])
    output.emit(
        imported[0] if len(files) == 1 else imported,
        table=lambda: print_table(_IMPORTED_COLUMNS, imported),
        ids=[each.profile_box_id for each in imported],
    )


class _ProfileImport(msgspec.Struct, frozen=True):
    profile_box_id: str
    name: str
    action: str


def _save_profile(store: "ProfileStore", profile: dict[str, Any]) -> _ProfileImport:
    known = store.find(profile["name"])
    entry = store.save(profile, author_id=OPERATOR)
    if known is not None and entry.profile_box_id == known.profile_box_id:
        action = "unchanged"
    else:
        action = "import" if known is None else "update"
        replaced = {} if known is None else {"box_before": known.profile_box_id}
        audit(store.database, "profile import", name=entry.name, box_id=entry.profile_box_id, **replaced)
    return _ProfileImport(entry.profile_box_id, entry.name, action)


_DONE = {"import": "imported", "update": "updated", "unchanged": "unchanged"}
_IMPORTED_COLUMNS = (
    Column("NAME", lambda each: each.name),
    Column("BOX", lambda each: each.profile_box_id),
    Column("DONE", lambda each: _DONE[each.action]),
)


@verb(
    "list",
    "cbx profile list",
    "cbx profile list -o json | jq -r '.[].name'",
    "cbx profile list --columns name,updated",
    pages=True,
    reads=True,
)
def list_profiles(
    limit: Limit = 50, columns: Annotated[str | None, column_option("name,box,updated")] = None
) -> None:
    """List the profiles of the project, sorted by name."""
    from cardbox_cli.store.profiles import ProfileStore

    shown = choose_columns(PROFILE_COLUMNS, columns)
    with open_database() as database:
        entries = ProfileStore(database, session().project_id).all()
        empty = empty_project_note(database, "profiles", "import one with `cbx profile import FILE.yaml`")
        reading = list_in_memory(entries, limit)
        listing = Listing(*reading, limit, shown, item_id=lambda entry: entry.profile_box_id, empty=empty)
        show_list(listing, database)


@verb(
    "show",
    "cbx profile show researcher",
    "cbx profile show researcher -o yaml > researcher.yaml",
    pages=True,
    reads=True,
)
def show_profile(
    name: Annotated[str, Argument(click_type=PROFILE, help="The profile's name, in upper or lower case.")],
) -> None:
    """Show a profile: its names and boxes in tables, its complete configuration in YAML or JSON."""
    from cardbox_cli.store.profiles import ProfileStore

    with open_database() as database, database.snapshot():
        profiles = ProfileStore(database, session().project_id)
        entry = profiles.get(name)
        profiles.refuse_lost_box(entry)
        profile = profiles.card(entry.profile_box_id)
    if profile is None:
        raise NotFound(
            f"the box {entry.profile_box_id} of profile {entry.name!r} does not contain a sys.profile card",
            hint="import the profile again with `cbx profile import FILE.yaml`",
        )
    configuration: Any = getattr(profile.content, "data", profile.content)

    def table() -> None:
        output.facts(
            ("profile", entry.name),
            ("box", entry.profile_box_id),
            ("card", profile.card_id),
            ("worker target", entry.worker_target),
        )
        output.print_text()
        if isinstance(configuration, dict):
            output.facts(*((key, _format_value(value)) for key, value in configuration.items()))

    output.emit(configuration, table=table, ids=[entry.profile_box_id])


def _format_value(value: Any) -> str | None:
    return value if isinstance(value, str) else exact_json.encode(value).decode()


@verb("validate", "cbx profile validate profiles/*.yaml")
def validate_profiles(
    files: ProfileFiles,
) -> None:
    """Check profiles, and print each error with file and line. Exit 4 if there are errors."""
    failures: list[CbxError] = []
    names: dict[str, str] = {}
    for file in files:
        try:
            name = _check_profile(file)
            if name in names:
                raise InvalidInput(
                    f"{source_name(file)}: profile {name!r} is also defined in {source_name(names[name])}",
                    hint="give each profile a different name",
                )
            names[name] = file
        except (InvalidInput, NotFound) as exc:
            failures.append(exc)
    if failures:
        raise combine_failures(failures)
    valid = format_count(len(files), "valid profile")
    output.emit({"valid": files, "problems": []}, table=lambda: output.print_text(valid), ids=files)


def _announce_warnings(profile: dict[str, Any], place: str, tools: Collection[str]) -> None:
    from cardbox_cli.model.handwritten.profiles import profile_warnings
    from cardbox_cli.model.identity import allowed_handlers
    from cardbox_cli.orchestration.handler_registry import HANDLERS

    for warning in [*profile_warnings(profile, tools), *HANDLERS.warnings(allowed_handlers(profile))]:
        announce(f"warning: {place}: {warning}")


def _check_profile(file: str) -> str:
    """Return the case-folded name of the profile in a file; announce warnings about it."""
    from cardbox_cli.model.handwritten.profiles import parse_profile

    profile = parse_profile(read_text(file), source_name(file))
    # Only a project knows its tools, so the named ones count as registered.
    _announce_warnings(profile, source_name(file), profile.get("must_end_with", []))
    return str(profile["name"]).casefold()
