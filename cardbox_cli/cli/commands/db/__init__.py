"""`cbx db`: the database behind it all: the embedded server's life, the tables, psql."""

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.parameters.inputs import confirm
from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.describe import count
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.errors import UsageError

if TYPE_CHECKING:
    from cardbox_cli.store.embedded import EmbeddedServer

app = noun(
    "Start, inspect, upgrade and remove the database.",
    elsewhere={verb: f"{__name__}.{verb}" for verb in ("gc", "status")},
)


def _embedded(action: str) -> "EmbeddedServer":
    target = session().target()
    if not target.embedded:
        raise UsageError(
            f"`cbx db {action}` is for the embedded server, and {target.named_by} names another database",
            hint=f"unset {target.named_by}, or manage that server with its own tools",
        )
    return target.server()


@app.command(epilog=examples("  cbx db start"))
def start() -> None:
    """Start the embedded server; any command that needs it does so too."""
    from cardbox_cli.cli.commands.db.status import say_status
    from cardbox_cli.store.views.status import database_status

    started = _embedded("start").start()
    with session().database() as database:
        answer = database_status(database)
    announce("started" if started else "it runs already")
    output.emit(answer, table=lambda: say_status(answer))


@app.command(epilog=examples("  cbx db stop"))
def stop() -> None:
    """Stop the embedded server. Nothing is lost; the next command starts it again."""
    stopped = _embedded("stop").stop()
    output.emit(
        {"stopped": stopped}, table=lambda: output.say("stopped" if stopped else "it was not running")
    )


@app.command(epilog=examples('  psql "$(cbx db url)"\n  DATABASE_URL=$(cbx db url) ./my-agent'))
def url() -> None:
    """Print the database's address for other programs; starts the embedded server. Passwords are left out."""
    target = session().target()
    if target.embedded:
        server = target.server()
        server.start()
        address = server.url()
    else:
        from cardbox_cli.store.connection.target import hide_password

        assert target.conninfo is not None
        address = hide_password(target.conninfo)
    output.emit({"url": address}, table=lambda: output.say(address), ids=[address])


@app.command(
    epilog=examples("  cbx db psql\n  cbx db psql -- -c 'select count(*) from cards'"),
    context_settings={"ignore_unknown_options": True},
)
def psql(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- ARGS", help="Passed on to psql.")
    ] = None,
) -> int:
    """Open psql on the database."""
    from cardbox_cli.store.connection.psql import psql_environment

    target = session().target()
    with session().database():
        pass
    bundled = target.server().program("psql")
    own = shutil.which("psql")
    program = str(bundled) if target.embedded or own is None else own
    return session().ground.hand_over(program, arguments or [], psql_environment(target))


@app.command(epilog=examples("  cbx --database-url postgresql://db.example.com/agents db init --yes"))
def init(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Add the missing tables.")] = False,
) -> None:
    """Add the tables that are missing. Without --yes it prints their SQL. No existing table is changed."""
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.schema import add_missing_tables, missing_parts

    with Database.connect(session().target()) as database:
        parts = missing_parts(database)
        added = add_missing_tables(database) if yes else []
    answer = {"missing": list(parts), "added": added, "sql": "\n\n".join(parts.values())}

    def table() -> None:
        if not parts:
            output.say("nothing is missing")
        elif yes:
            output.say(f"added {', '.join(added)}")
        else:
            output.say(str(answer["sql"]))

    output.emit(answer, table=table, ids=list(parts))
    if parts and not yes:
        announce(f"{count(len(parts), 'table')} would be added; run it with --yes to add them")


@app.command(epilog=examples("  cbx db upgrade"))
def upgrade() -> None:
    """Bring an older database to this cbx's schema version."""
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.schema import upgrade as upgrade_schema

    with Database.connect(session().target()) as database:
        before, after = upgrade_schema(database)
    answer = {"before": before, "after": after}
    text = f"schema version {after}" + ("" if before == after else f", was {before}")
    output.emit(answer, table=lambda: output.say(text))


@app.command(epilog=examples("  cbx db index-text"))
def index_text() -> None:
    """Build the index that makes searching for words fast. It slows imports down."""
    from cardbox_cli.store.schema import index_text as build

    with session().database() as database:
        build(database)
    output.emit({"index": "idx_cards_text"}, table=lambda: output.say("idx_cards_text is there"))


@app.command(epilog=examples("  cbx db destroy --yes"))
def destroy(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Stop the embedded server and delete all of its data."""
    server = _embedded("destroy")
    confirm(f"Delete the embedded database of {server.home}, every project in it?", yes=yes)
    removed = [str(path) for path in server.destroy()]
    told = "\n".join(f"removed {path}" for path in removed) or "there was nothing to remove"
    output.emit({"removed": removed}, table=lambda: output.say(told))
