"""`cbx token list`. Its columns stand in `terminal/columns/roster.py`."""

from cardbox_cli.cli.options.shared_options import ColumnNames
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import TOKEN_COLUMNS
from cardbox_cli.cli.terminal.table_layout import chosen
from cardbox_cli.cli.verb import verb


@verb(
    "list",
    "cbx token list",
    "cbx token list -o json | jq -r '.[] | select(.revoked_at == null).token_id'",
    pages=True,
    reads=True,
)
def list_tokens(columns: ColumnNames = None) -> None:
    """List the tokens of the project, revoked and expired ones too, oldest first."""
    from cardbox_cli.store.api_tokens import ApiTokenStore

    shown = chosen(TOKEN_COLUMNS, columns)
    with open_database() as database:
        found = ApiTokenStore(database, session().project_id).all()
    output.emit_list(
        found,
        columns=shown,
        item_id=lambda token: token.token_id,
        empty=f"no tokens open project {session().project_id!r}: `cbx token create` makes one",
    )
