"""`cbx db psql`."""

import shutil
from typing import Annotated

from typer import Argument

from cardbox_cli.cli.project_database import database_target, open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.verb import verb


@verb("psql", "cbx db psql", "cbx db psql -- -c 'select count(*) from cards'", takes_unknown_options=True)
def run_psql(
    arguments: Annotated[list[str] | None, Argument(metavar="-- ARGS", help="Passed on to psql.")] = None,
) -> int:
    """Open psql on the database."""
    from cardbox_cli.store.connection.psql import psql_environment

    target = database_target()
    with open_database():
        pass
    bundled = target.server().program("psql")
    own = shutil.which("psql")
    program = str(bundled) if target.embedded or own is None else own
    return session().process.run_program(program, arguments or [], psql_environment(target))
