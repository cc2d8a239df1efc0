"""`cbx db upgrade`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("cbx db upgrade --dry-run", "cbx db upgrade")
def command(
    dry_run: Annotated[bool, Option("--dry-run", help="Only print the SQL that would run.")] = False,
) -> None:
    """Bring an older database to this cbx's schema version. Tables of other programs stay as they are.

    cbx upgrades from version 17 on. To move the data of an older embedded database to a new one:

    \b
    PROGRAMS=$(cbx db status -o json | jq -r .programs)
    "$PROGRAMS/pg_dump" --data-only --file=cbx.sql --table='cbx.*' --table='resource.*' \\
      --table='state.*' --table=public.projects --table=public.cards --table=public.card_boxes \\
      --exclude-table=cbx.schema_version "$(cbx db url)" && cbx db destroy --yes
    cbx db init --yes
    "$PROGRAMS/psql" -X --single-transaction --set=ON_ERROR_STOP=1 --file=cbx.sql "$(cbx db url)"
    """
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.migrations import upgrade as upgrading

    with Database.connect(session().target()) as database:
        plan = upgrading.plan_upgrade(database) if dry_run else upgrading.upgrade(database, announce)
    answer = {"before": plan.before, "after": plan.after, "dry_run": dry_run, "sql": plan.script}
    text = f"schema version {plan.after}" + ("" if plan.before == plan.after else f", was {plan.before}")
    output.emit(answer, table=lambda: output.print_text(plan.script if dry_run and plan.steps else text))
