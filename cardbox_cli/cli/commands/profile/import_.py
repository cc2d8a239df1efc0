"""`cbx profile import`."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Argument

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.input_files import read_text, source_name
from cardbox_cli.cli.options.value_types import FILE
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, print_table
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.cards import OPERATOR

if TYPE_CHECKING:
    from cardbox_cli.store.profiles import ProfileStore


@verb("import", "cbx profile import researcher.yaml", "cbx profile import - < researcher.yaml")
def import_profiles(
    files: Annotated[list[str], Argument(click_type=FILE, help="YAML files, one profile each; - for stdin.")],
) -> None:
    """Store profiles. A name that exists then points to the new version; boxes of the old one stay.

    What a name says already is unchanged, and makes no new box.
    """
    from cardbox_cli.execution.handlers import unknown_handlers
    from cardbox_cli.model.handwritten.profiles import doubts, parse_profile
    from cardbox_cli.model.identity import allowed_handlers
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.profiles import ProfileStore
    from cardbox_cli.store.tools import ToolStore

    profiles = [parse_profile(read_text(file), source_name(file)) for file in files]
    with open_database() as database:
        store = ProfileStore(database, session().project_id)
        tools = ToolStore(database, session().project_id).names()
        for profile in profiles:
            for warning in [*doubts(profile, tools), *unknown_handlers(allowed_handlers(profile))]:
                announce(f"warning: profile {profile['name']!r}: {warning}")
        with database.transaction():
            imported = [_save(store, profile) for profile in profiles]
        newest = BoxStore(database, session().project_id).get(imported[-1].profile_box_id)
        remember_made(card_id=newest.card_ids[-1], box_id=newest.box_id)
    output.emit(
        imported[0] if len(files) == 1 else imported,
        table=lambda: print_table(_IMPORTED, imported),
        ids=[each.profile_box_id for each in imported],
    )


class _Imported(msgspec.Struct, frozen=True):
    profile_box_id: str
    name: str
    action: str


def _save(store: "ProfileStore", profile: dict[str, Any]) -> _Imported:
    """Store a profile, and write that down; what that took: `import`, `update` or nothing, `unchanged`."""
    known = store.find(profile["name"])
    entry = store.save(profile, author_id=OPERATOR)
    box_before = None if known is None else known.profile_box_id
    action = "import" if known is None else "update"
    if entry.profile_box_id == box_before:
        action = "unchanged"
    else:
        replaced = {} if box_before is None else {"box_before": box_before}
        audit(store.database, "profile import", name=entry.name, box_id=entry.profile_box_id, **replaced)
    return _Imported(entry.profile_box_id, entry.name, action)


_DONE = {"import": "imported", "update": "updated", "unchanged": "unchanged"}
_IMPORTED = (
    Column("NAME", lambda each: each.name),
    Column("BOX", lambda each: each.profile_box_id),
    Column("DONE", lambda each: _DONE[each.action]),
)
