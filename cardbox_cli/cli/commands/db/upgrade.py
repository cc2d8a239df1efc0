"""`cbx db upgrade`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.project_database import database_target
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("upgrade", "cbx db upgrade --dry-run", "cbx db upgrade")
def upgrade_database(
    dry_run: Annotated[bool, Option("--dry-run", help="Only print the SQL that would run.")] = False,
) -> None:
    """Bring an older database to this cbx's schema version. Tables of other programs stay as they are."""
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.migrations import upgrade as upgrading

    with Database.connect(database_target()) as database:
        plan = upgrading.plan_upgrade(database) if dry_run else upgrading.upgrade(database, announce)
    answer = {"before": plan.before, "after": plan.after, "dry_run": dry_run, "sql": plan.script}
    text = f"schema version {plan.after}" + ("" if plan.before == plan.after else f", was {plan.before}")
    output.emit(answer, table=lambda: output.print_text(plan.script if dry_run and plan.steps else text))
