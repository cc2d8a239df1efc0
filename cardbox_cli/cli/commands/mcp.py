"""`cbx mcp`."""

from contextlib import closing
from typing import Annotated

from typer import Option

from cardbox_cli.cli.boundary import end_at_interrupt
from cardbox_cli.cli.options.value_types import Seconds
from cardbox_cli.cli.project_database import database_target
from cardbox_cli.cli.session import session
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.settings import read_settings


@verb("mcp", "cbx mcp", "cbx --project shop mcp", reads=True)
def serve_mcp(
    statement_timeout: Annotated[
        float, Option(click_type=Seconds(min=0.1, max=3600), help="Time limit of one database statement.")
    ] = 30,
) -> None:
    """Serve read-only tools for this project to a coding agent, over the Model Context Protocol on stdio.

    The tools return what `cbx why`, `turn show`, `render`, `card search` and `cost` print. The server ends
    when its stdin closes. Needs the `mcp` extra of the package.
    """
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise UsageError("the library mcp is not installed", hint="pip install 'cardbox-cli[mcp]'")
    from cardbox_cli.serve.mcp import ToolRunner, make_connection_pool, make_server

    with closing(make_connection_pool(database_target(), longest=statement_timeout)) as lending:
        with lending.snapshot():
            pass  # report an unusable database at once
        read = ToolRunner(lending, session().project_id, settings=read_settings())
        # A thread waits for stdin, and an interrupt does not wake it.
        with end_at_interrupt():
            make_server(read).run("stdio")
