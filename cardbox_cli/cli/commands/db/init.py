"""`cbx db init`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.project_database import database_target
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.text.quantities import count


@verb("init", "cbx --database-url postgresql://db.example.com/agents db init --yes")
def init_database(
    yes: Annotated[bool, Option("--yes", "-y", help="Add the missing tables.")] = False,
) -> None:
    """Add the tables that are missing. Without --yes it prints their SQL. No existing table is changed."""
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.migrations.upgrade import add_missing_tables, missing_tables

    with Database.connect(database_target()) as database:
        parts = missing_tables(database)
        added = add_missing_tables(database) if yes else []
    answer = {"missing": list(parts), "added": added, "sql": "\n\n".join(parts.values())}

    def table() -> None:
        if not parts:
            output.print_text("nothing is missing")
        elif yes:
            output.print_text(f"added {', '.join(added)}")
        else:
            output.print_text(str(answer["sql"]))

    output.emit(answer, table=table, ids=list(parts))
    if parts and not yes:
        announce(f"{count(len(parts), 'table')} would be added; run it with --yes to add them")
