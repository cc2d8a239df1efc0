"""`cbx db distribute`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.project_database import database_target
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.text.quantities import count

MEANING = (
    "card ids are unique per project from then on, no more across projects: card-box clients, which upsert on"
    " the id alone, can no longer write here, only read"
)


@verb("distribute", "cbx db distribute --dry-run", "cbx db distribute --yes")
def distribute_tables(
    dry_run: Annotated[bool, Option("--dry-run", help="Only print the SQL that would run.")] = False,
    yes: Yes = False,
) -> None:
    """Spread the tables over the nodes of a Citus cluster, by project.

    All rows of a project lie on one node, and every statement of a command goes there. A table moves with its
    rows in one transaction, which keeps writers waiting; stopped in the middle, a second run finishes.
    """
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.migrations import distribution
    from cardbox_cli.store.migrations.distributing import GLOBAL_IDS

    with Database.connect(database_target()) as database:
        plan = distribution.plan_distribution(database)
        if plan.steps and not dry_run:
            announce(f"the index {GLOBAL_IDS} goes: {MEANING}")
            confirm(
                f"Distribute {count(len(distribution.distributed_by(plan)), 'table')} by project?", yes=yes
            )
            plan = distribution.distribute(database, announce)
    names = distribution.distributed_by(plan)
    answer = {"dry_run": dry_run, "tables": names, "sql": plan.script}
    text = (
        f"distributed {count(len(names), 'table')}"
        if plan.steps
        else "every table of projects is distributed already"
    )
    output.emit(
        answer,
        table=lambda: output.print_text(plan.script if dry_run and plan.steps else text),
        ids=names,
    )
    if dry_run and plan.steps:
        announce(f"it drops the index {GLOBAL_IDS}: {MEANING}")
