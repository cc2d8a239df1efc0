"""`cbx token`: the access tokens of a project for HTTP."""

from typing import Annotated

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.actor import actor, audit
from cardbox_cli.cli.options.shared_options import column_option
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import TOKEN_COLUMNS
from cardbox_cli.cli.terminal.table_layout import choose_columns
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.text.error_messages import invalid_message
from cardbox_cli.text.times import format_time, parse_duration


@verb(
    "create",
    "cbx token create --label 'dashboard of the night shift' --expires 90d",
    "cbx token create --label ci -o json | jq -r .token > token",
)
def create_token(
    label: Annotated[str, Option(metavar="TEXT", help="A label for the list of tokens.")] = "",
    expires: Annotated[
        str | None, Option(metavar="DURATION", help="Lifetime, for example 12h or 90d. Default: no expiry.")
    ] = None,
) -> None:
    """Create a token that lets a program or a browser read this project through `cbx serve`.

    cbx prints the token once and stores only its hash.
    """
    from cardbox_cli.store.api_tokens import ApiTokenStore
    from cardbox_cli.store.projects import require_known

    lifetime = None if expires is None else parse_duration(expires)
    if expires is not None and not lifetime:
        message = f"--expires: {invalid_message('duration', expires)}"
        raise UsageError(message, hint="for example --expires 90d")
    with open_database() as database, database.transaction():
        require_known(database, session().project_id)
        tokens = ApiTokenStore(database, session().project_id)
        token, entry = tokens.create(label=label, actor=actor(database), lasts=lifetime)
        audit(database, "token create", token_id=entry.token_id, label=label)
    until = "" if entry.expires_at is None else f", until {format_time(entry.expires_at)}"
    announce(
        f"token {entry.token_id} grants access to project {entry.project_id!r}{until}; it is not shown again"
    )
    output.emit(
        {"token": token, **msgspec.structs.asdict(entry)}, table=lambda: output.print_text(token), ids=[token]
    )


@verb(
    "list",
    "cbx token list",
    "cbx token list -o json | jq -r '.[] | select(.revoked_at == null).token_id'",
    pages=True,
    reads=True,
)
def list_tokens(columns: Annotated[str | None, column_option("id,state,expires")] = None) -> None:
    """List the tokens of the project, oldest first, including revoked and expired ones."""
    from cardbox_cli.store.api_tokens import ApiTokenStore

    shown = choose_columns(TOKEN_COLUMNS, columns)
    with open_database() as database:
        tokens = ApiTokenStore(database, session().project_id).all()
    output.emit_list(
        tokens,
        columns=shown,
        item_id=lambda token: token.token_id,
        empty=f"no tokens for project {session().project_id!r}: create one with `cbx token create`",
    )


@verb("revoke", "cbx token revoke 5bcafb8f1c77")
def revoke_token(
    token: Annotated[str, Argument(metavar="ID", help="The token's id, as `cbx token list` shows it.")],
) -> None:
    """Revoke a token. Browsers that logged in with it are logged out."""
    from cardbox_cli.store.api_tokens import ApiTokenStore

    with open_database() as database, database.transaction():
        revoked = ApiTokenStore(database, session().project_id).revoke(token)
        audit(database, "token revoke", token_id=revoked.token_id, label=revoked.label)
    output.emit(
        revoked, table=lambda: output.print_text(f"revoked {revoked.token_id}"), ids=[revoked.token_id]
    )
