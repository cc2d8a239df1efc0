"""`cbx token revoke`."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("revoke", "cbx token revoke 5bcafb8f1c77")
def revoke_token(
    token: Annotated[str, Argument(metavar="ID", help="The token's id, as `cbx token list` shows it.")],
) -> None:
    """Revoke a token: from now on it opens nothing, and nobody stays logged in by it."""
    from cardbox_cli.store.api_tokens import ApiTokenStore

    with open_database() as database, database.transaction():
        revoked = ApiTokenStore(database, session().project_id).revoke(token)
        audit(database, "token revoke", token_id=revoked.token_id, label=revoked.label)
    output.emit(
        revoked, table=lambda: output.print_text(f"revoked {revoked.token_id}"), ids=[revoked.token_id]
    )
