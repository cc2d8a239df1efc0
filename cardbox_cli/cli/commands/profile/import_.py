"""`cbx profile import`."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.parameters.inputs import read_text, source_name
from cardbox_cli.cli.parameters.types import FILE
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.tables import Column, print_table
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.cards import OPERATOR


@verb("cbx profile import researcher.yaml", "cbx profile import - < researcher.yaml")
def command(
    files: Annotated[list[str], Argument(click_type=FILE, help="YAML files, one profile each; - for stdin.")],
) -> None:
    """Store profiles. A name that exists then points to the new version; boxes of the old one stay."""
    from cardbox_cli.model.handwritten.profiles import parse_profile, unknown_keys
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.profiles import ProfileStore

    profiles = [parse_profile(read_text(file), source_name(file)) for file in files]
    for profile in profiles:
        for warning in unknown_keys(profile):
            announce(f"warning: profile {profile['name']!r}: {warning}")
    with session().database() as database:
        store = ProfileStore(database, session().project_id)
        with database.transaction():
            entries = [store.save(profile, author_id=OPERATOR) for profile in profiles]
        newest = BoxStore(database, session().project_id).get(entries[-1].profile_box_id)
        session().made(card_id=newest.card_ids[-1], box_id=newest.box_id)
    answers = [{"profile_box_id": entry.profile_box_id, "name": entry.name} for entry in entries]
    output.emit(
        answers[0] if len(files) == 1 else answers,
        table=lambda: print_table(_ENTRY, entries),
        ids=[entry.profile_box_id for entry in entries],
    )


_ENTRY = (Column("NAME", lambda entry: entry.name), Column("BOX", lambda entry: entry.profile_box_id))
