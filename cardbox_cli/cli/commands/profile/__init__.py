"""`cbx profile`: the static configurations of agents, found by name."""

from typing import Annotated, Any

import typer

from cardbox_cli.cli.parameters.inputs import read_text, source_name
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import PROFILE, PROFILE_DEFAULT, chosen
from cardbox_cli.cli.terminal.lists import ColumnNames, Limit, Listing, held_whole, nothing_here, show_list
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.errors import NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import OPERATOR

app = noun("Import, list and show the profiles of agents.")


@app.command(
    "import",
    epilog=examples("  cbx profile import researcher.yaml\n  cbx profile import - < researcher.yaml"),
)
def import_(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="YAML files, one profile each; - for stdin.")
    ],
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
        table=lambda: output.print_table(
            ["NAME", "BOX"], [[each.name, each.profile_box_id] for each in entries]
        ),
        ids=[entry.profile_box_id for entry in entries],
    )


@app.command(
    "list",
    epilog=examples(
        "  cbx profile list\n"
        "  cbx profile list -o json | jq -r '.[].name'\n"
        "  cbx profile list --columns name,updated"
    ),
)
def list_(limit: Limit = 50, columns: ColumnNames = None) -> None:
    """List the profiles of the project by name."""
    from cardbox_cli.store.profiles import ProfileStore

    names = chosen(PROFILE, PROFILE_DEFAULT, columns)
    with session().database() as database:
        entries = ProfileStore(database, session().project_id).all()
        read, further = held_whole(entries, limit)
        listing = Listing(
            read=read,
            further=further,
            limit=limit,
            columns=PROFILE,
            names=names,
            item_id=lambda entry: entry.profile_box_id,
            empty=nothing_here(database, "profiles", "`cbx profile import FILE.yaml` adds one"),
        )
        show_list(listing, database)


@app.command(
    epilog=examples("  cbx profile show researcher\n  cbx profile show researcher -o yaml > researcher.yaml")
)
def show(
    name: Annotated[str, typer.Argument(metavar="PROFILE", help="The profile's name, in any case.")],
) -> None:
    """Show a profile: its names and boxes as a table, its whole configuration as YAML or JSON."""
    from cardbox_cli.store.profiles import ProfileStore

    with session().database() as database, database.snapshot():
        profiles = ProfileStore(database, session().project_id)
        entry = profiles.get(name)
        profiles.refuse_lost_box(entry)
        profile = profiles.card(entry.profile_box_id)
    if profile is None:
        raise NotFound(
            f"the box {entry.profile_box_id} of profile {entry.name!r} holds no sys.profile card",
            hint="import the profile again",
        )
    configuration: Any = getattr(profile.content, "data", profile.content)

    def table() -> None:
        output.facts(
            [
                ("profile", entry.name),
                ("box", entry.profile_box_id),
                ("card", profile.card_id),
                ("worker target", entry.worker_target),
            ]
        )
        output.say()
        if isinstance(configuration, dict):
            output.facts((key, _plain(value)) for key, value in configuration.items())

    output.emit(configuration, table=table, ids=[entry.profile_box_id])


def _plain(value: Any) -> str | None:
    return value if isinstance(value, str) else exact_json.encode(value).decode()
