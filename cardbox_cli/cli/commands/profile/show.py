"""`cbx profile show`."""

from typing import Annotated, Any

from typer import Argument

from cardbox_cli.cli.options.value_types import PROFILE
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import NotFound
from cardbox_cli.model import exact_json


@verb(
    "show",
    "cbx profile show researcher",
    "cbx profile show researcher -o yaml > researcher.yaml",
    pages=True,
    reads=True,
)
def show_profile(
    name: Annotated[str, Argument(click_type=PROFILE, help="The profile's name, in any case.")],
) -> None:
    """Show a profile: its names and boxes as a table, its whole configuration as YAML or JSON."""
    from cardbox_cli.store.profiles import ProfileStore

    with open_database() as database, database.snapshot():
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
            ("profile", entry.name),
            ("box", entry.profile_box_id),
            ("card", profile.card_id),
            ("worker target", entry.worker_target),
        )
        output.print_text()
        if isinstance(configuration, dict):
            output.facts(*((key, _plain(value)) for key, value in configuration.items()))

    output.emit(configuration, table=table, ids=[entry.profile_box_id])


def _plain(value: Any) -> str | None:
    return value if isinstance(value, str) else exact_json.encode(value).decode()
