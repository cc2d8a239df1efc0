"""`cbx token create`."""

from datetime import timedelta
from typing import Annotated

import msgspec
from typer import Option

from cardbox_cli.cli.actor import actor, audit
from cardbox_cli.cli.options.shared_options import parse_time
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.text.quantities import time


@verb(
    "create",
    "cbx token create --label 'dashboard of the night shift' --expires 90d",
    "cbx token create --label ci -o json | jq -r .token > token",
)
def create_token(
    label: Annotated[str, Option(metavar="TEXT", help="What it is for: the list shows it.")] = "",
    expires: Annotated[
        str | None, Option(metavar="TIME", help="How long it opens the project: 12h, 90d. Default: for good.")
    ] = None,
) -> None:
    """Make a token by which a program, or a browser, reads this project through `cbx serve`.

    It is printed once, and kept nowhere: what the database has is its hash.
    """
    from cardbox_cli.store.api_tokens import ApiTokenStore
    from cardbox_cli.store.projects import require_known

    lasts = None if expires is None else _lasting(expires)
    with open_database() as database, database.transaction():
        require_known(database, session().project_id)
        tokens = ApiTokenStore(database, session().project_id)
        token, kept = tokens.create(label=label, actor=actor(database), lasts=lasts)
        audit(database, "token create", token_id=kept.token_id, label=label)
    until = "" if kept.expires_at is None else f", until {time(kept.expires_at)}"
    announce(f"token {kept.token_id} opens project {kept.project_id!r}{until}; it is not shown again")
    output.emit(
        {"token": token, **msgspec.structs.asdict(kept)}, table=lambda: output.print_text(token), ids=[token]
    )


def _lasting(given: str) -> timedelta:
    lasts = parse_time(given, "--expires")
    if not isinstance(lasts, timedelta) or not lasts:
        raise UsageError(f"--expires: {given!r} is no length of time", hint="for example --expires 90d")
    return lasts
