"""`cbx serve`: the inspector and the read-only HTTP API."""

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from typer import Option

from cardbox_cli.cli.options.value_types import Seconds
from cardbox_cli.cli.project_database import database_target
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.settings import read_settings

if TYPE_CHECKING:
    from cardbox_cli.serve.serve_options import ServeOptions
    from cardbox_cli.store.connection.connection_pool import ConnectionPool


@verb(
    "serve",
    "cbx serve",
    "cbx serve --port 8200 --require-token",
    "cbx serve --host 0.0.0.0 --behind-tls --allowed-host cbx.example.org",
)
def serve_project(
    host: Annotated[str, Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, Option(metavar="N", min=0, max=65535, help="The port to listen on; 0 picks a free port.")
    ] = 8099,
    require_token: Annotated[
        bool,
        Option(
            "--require-token",
            help="Require a token on this machine, too. Other addresses, proxies and names always "
            "require a token.",
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None, Option(metavar="NAME", help="Accept requests for this host name. Repeatable.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, Option(metavar="URL", help="Allow browser requests from this origin. Repeatable.")
    ] = None,
    behind_tls: Annotated[
        bool, Option("--behind-tls", help="Run behind a TLS proxy: browsers send cookies only over TLS.")
    ] = False,
    access_log: Annotated[
        bool, Option("--access-log", help="Print each request to stderr, without query and token.")
    ] = False,
    connections: Annotated[
        int, Option(metavar="N", min=1, max=100, help="Use at most N database connections.")
    ] = 8,
    statement_timeout: Annotated[
        float, Option(click_type=Seconds(min=0.1, max=3600), help="Time limit of one database statement.")
    ] = 30,
) -> None:
    """Open the inspector for browsers, and a read-only HTTP API for programs. Stop it with Ctrl-C.

    On a loopback address, every account of this machine can read all projects unless you pass
    --require-token. `cbx token create` creates tokens. Needs the `serve` extra of the package.
    """
    _require_packages()
    from cardbox_cli.serve.app import make_app
    from cardbox_cli.serve.http.server import open_socket, serve
    from cardbox_cli.serve.serve_options import ServeOptions, is_loopback

    names = allowed_host or []
    if not is_loopback(host) and not names and not behind_tls:
        announce(
            "warning: without TLS, tokens cross the network unencrypted; use a TLS proxy and --behind-tls"
        )
    options = ServeOptions(
        target=database_target(),
        settings=read_settings(),
        usual_project=session().usual_project,
        project=session().project_id,
        host=host,
        port=port,
        hosts=names,
        origins=cors_origin or (),
        # A proxy or another name admits people who have no account on this machine.
        asks_for_tokens=require_token or behind_tls or not all(map(is_loopback, [host, *names])),
        behind_tls=behind_tls,
        connections=connections,
        statement_timeout=statement_timeout,
        log=announce if access_log else None,
    )
    app = make_app(options)
    with closing(app.state.connections) as lending:
        _check_database(lending, options)
        with closing(open_socket(options)) as listening:
            chosen = listening.getsockname()[1]
            address = options.address if port else options.address.replace(":0/", f":{chosen}/")
            output.print_text(f"{address}inspect/{quote(session().project_id, safe='')}")
            # A reader of the pipe waits for this line.
            sys.stdout.flush()
            serve(app, listening, options)


def _require_packages() -> None:
    from importlib.util import find_spec

    for name in ("fastapi", "jinja2", "python_multipart", "uvicorn", "uvloop"):
        if find_spec(name) is None:
            raise UsageError(f"the library {name} is not installed", hint="pip install 'cardbox-cli[serve]'")


def _check_database(lending: "ConnectionPool", options: "ServeOptions") -> None:
    """Raise the errors of connecting now, instead of showing them on a page."""
    with lending.snapshot() as database:
        if options.asks_for_tokens:
            from cardbox_cli.store.connection.tables import TOKENS

            database.require(TOKENS)
