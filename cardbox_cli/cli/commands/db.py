"""`cbx db`: the embedded server, the tables, garbage collection and psql."""

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cardbox_cli.cli.actor import audit_in
from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.options.shared_options import Latest
from cardbox_cli.cli.project_database import database_target, open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, print_below, print_table
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.limits import MAX_BOXES_SEARCHED
from cardbox_cli.text.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from cardbox_cli.store.embedded import EmbeddedServer
    from cardbox_cli.store.gc import PurgeCounts
    from cardbox_cli.store.views.database_status import ProjectSize


def embedded_server(action: str) -> "EmbeddedServer":
    target = database_target()
    if not target.embedded:
        raise UsageError(
            f"`cbx db {action}` works only on the embedded server, but {target.named_by} names "
            f"another database",
            hint=f"unset {target.named_by}, or manage that server with its own tools",
        )
    return target.server()


@verb("start", "cbx db start")
def start_server() -> None:
    """Start the embedded server. Commands that need it start it automatically."""
    from cardbox_cli.store.views.database_status import database_status

    started = embedded_server("start").start()
    with open_database() as database:
        answer = database_status(database)
    announce("started" if started else "already running")
    output.emit(answer, table=lambda: _print_status(answer))


@verb("stop", "cbx db stop")
def stop_server() -> None:
    """Stop the embedded server. Its data stay, and the next command starts it again."""
    stopped = embedded_server("stop").stop()
    output.emit(
        {"stopped": stopped}, table=lambda: output.print_text("stopped" if stopped else "was not running")
    )


@verb(
    "status",
    "cbx db status",
    "cbx db status --exact",
    "cbx db status -o json | jq '.schema_version, .project.cards'",
    pages=True,
)
def show_status(
    exact: Annotated[
        bool, Option("--exact", help="Count every row. Default: estimates for large tables, shown with ~.")
    ] = False,
) -> None:
    """Show the database in use, where its files are, and what it contains. Does not start a server."""
    from cardbox_cli.store.views.database_status import target_status

    answer = target_status(database_target(), session().project_id, exact=exact)
    output.emit(answer, table=lambda: _print_status(answer))


def _print_status(answer: dict[str, Any]) -> None:
    names = {key: "size" if key == "size_bytes" else key.replace("_", " ") for key in answer}
    output.facts(*((names[key], _format_status(key, value)) for key, value in answer.items()))
    print_below(_TABLE, answer.get("table_sizes") or [])


_TABLE = (
    Column("TABLE", lambda size: size.table),
    Column("ROWS", lambda size: _number_line(size.rows, size.exact), right=True),
    Column("SIZE", lambda size: format_bytes(size.bytes), right=True),
    Column("INDEXES", lambda size: format_bytes(size.index_bytes), right=True),
)


def _project_line(size: "ProjectSize") -> str:
    hidden = "" if size.expired is None else f" ({size.expired} expired, {size.deleted} deleted)"
    cards = ("" if size.cards_exact else "~") + format_count(size.cards, "card")
    boxes = ("" if size.boxes_exact else "~") + format_count(size.boxes, "box")
    return f"{size.project_id}: {cards}{hidden}, {boxes}"


def _number_line(rows: int | None, exact: bool) -> str:
    if rows is None:
        return "unknown"
    return str(rows) if exact else f"~{rows}"


def _index_line(exists: bool) -> str:
    return "yes" if exists else "no; build it with `cbx db index-text`"


_STATUS_FORMATS: dict[str, Callable[[Any], str | None]] = {
    "tables": lambda names: (
        f"{len(names)}, listed below" if names else "none; create them with `cbx db init --yes`"
    ),
    "unreadable_tables": lambda names: ", ".join(names) or None,
    "distributed": lambda spread: (
        f"{format_count(spread.tables, 'table')} by project, over {format_count(spread.shards, 'shard')}"
        f" on {format_count(spread.nodes, 'node')}"
    ),
    "pooler": lambda is_pooled: (
        "yes; no prepared statements, and workers receive no notifications" if is_pooled else "no"
    ),
    "keeps_plans": lambda prepares: "yes, by workers" if prepares else "no",
    "text_index": _index_line,
    "bigram_index": _index_line,
    "size_bytes": format_bytes,
    "project": _project_line,
    # Printed as a separate table.
    "table_sizes": lambda _: None,
}


def _format_status(key: str, value: Any) -> str | None:
    if value is None:
        return None
    if key in _STATUS_FORMATS:
        return _STATUS_FORMATS[key](value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


@verb("url", 'psql "$(cbx db url)"', "DATABASE_URL=$(cbx db url) ./my-agent")
def print_url() -> None:
    """Print the database's address, without passwords, for other programs. Starts the embedded server."""
    from cardbox_cli.store.connection.target import hide_password

    target = database_target()
    if target.embedded:
        server = target.server()
        server.start()
        address = server.url()
    else:
        assert target.conninfo is not None
        address = hide_password(target.conninfo)
    output.emit({"url": address}, table=lambda: output.print_text(address), ids=[address])


@verb("psql", "cbx db psql", "cbx db psql -- -c 'select count(*) from cards'", takes_unknown_options=True)
def run_psql(
    arguments: Annotated[list[str] | None, Argument(metavar="-- ARGS", help="Arguments for psql.")] = None,
) -> int:
    """Open psql on the database."""
    from cardbox_cli.store.connection.target import psql_environment

    target = database_target()
    with open_database():
        pass
    installed = None if target.embedded else shutil.which("psql")
    program = installed or str(target.server().program("psql"))
    return session().process.run_program(program, arguments or [], psql_environment(target))


@verb("init", "cbx --database-url postgresql://db.example.com/agents db init --yes")
def init_database(
    yes: Annotated[bool, Option("--yes", "-y", help="Create the missing tables.")] = False,
) -> None:
    """Print the SQL of missing tables, or create them with --yes. Existing tables do not change."""
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
        announce(f"{format_count(len(parts), 'table')} missing; create them with `cbx db init --yes`")


@verb("upgrade", "cbx db upgrade --dry-run", "cbx db upgrade")
def upgrade_database(
    dry_run: Annotated[bool, Option("--dry-run", help="Print the SQL without running it.")] = False,
) -> None:
    """Upgrade an older database to this schema version. Tables of other programs do not change.

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

    with Database.connect(database_target()) as database:
        plan = upgrading.plan_upgrade(database) if dry_run else upgrading.upgrade(database, announce)
    answer = {"before": plan.before, "after": plan.after, "dry_run": dry_run, "sql": plan.script}
    text = f"schema version {plan.after}" + ("" if plan.before == plan.after else f", was {plan.before}")
    output.emit(answer, table=lambda: output.print_text(plan.script if dry_run and plan.steps else text))


_DISTRIBUTION = (
    "card ids are then unique per project only: card-box clients, which upsert on the id alone, can read but"
    " no longer write"
)


@verb("distribute", "cbx db distribute --dry-run", "cbx db distribute --yes")
def distribute_tables(
    dry_run: Annotated[bool, Option("--dry-run", help="Print the SQL without running it.")] = False,
    yes: Yes = False,
) -> None:
    """Distribute the tables over the nodes of a Citus cluster, by project.

    All rows of a project are on one node, and every statement of a command goes there. Each table moves in
    one transaction, which blocks writers. If the command is stopped, run it again to finish.
    """
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.migrations import distribution
    from cardbox_cli.store.migrations.distribution import GLOBAL_IDS

    with Database.connect(database_target()) as database:
        plan = distribution.plan_distribution(database)
        if plan.steps and not dry_run:
            announce(f"this drops the index {GLOBAL_IDS}: {_DISTRIBUTION}")
            confirm(
                f"Distribute {format_count(len(distribution.distributed_by(plan)), 'table')} by project?",
                yes=yes,
            )
            plan = distribution.distribute(database, announce)
    names = distribution.distributed_by(plan)
    answer = {"dry_run": dry_run, "tables": names, "sql": plan.script}
    text = (
        f"distributed {format_count(len(names), 'table')}"
        if plan.steps
        else "all tables are already distributed"
    )
    output.emit(
        answer, table=lambda: output.print_text(plan.script if dry_run and plan.steps else text), ids=names
    )
    if dry_run and plan.steps:
        announce(f"this drops the index {GLOBAL_IDS}: {_DISTRIBUTION}")


@verb("index-text", "cbx db index-text")
def index_text() -> None:
    """Build the indexes for fast text search. They slow down imports.

    One index contains words, the other pairs of Chinese, Japanese and Korean characters.
    """
    from cardbox_cli.store.cards import index_text as build_indexes

    with open_database() as database:
        built = build_indexes(database, announce)
    text = f"{' and '.join(built)} {'is' if len(built) == 1 else 'are'} built"
    names = dict(zip(("index", "bigram_index"), [*built, None], strict=False))
    output.emit(names, table=lambda: output.print_text(text))


@verb(
    "gc",
    "cbx db gc --dry-run",
    "cbx db gc --yes",
    "cbx db gc --purge --all-projects --yes -o json | jq .purged",
)
def collect_garbage(
    purge: Annotated[bool, Option("--purge", help="Also purge deleted cards.")] = False,
    all_projects: Annotated[bool, Option("--all-projects", help="Purge in all projects.")] = False,
    batch_size: Annotated[
        int, Option(metavar="N", min=1, help="Purge N rows per transaction.", show_default=True)
    ] = 1000,
    latest: Latest = MAX_BOXES_SEARCHED.value,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print what would be purged.")] = False,
    yes: Yes = False,
) -> None:
    """Permanently delete expired cards, and logs of turns that are older than 30 days.

    The command works in small transactions that do not block writers. If it is stopped, run it
    again to finish. Boxes do not change; dangling references in recently changed boxes are reported.
    """
    from cardbox_cli.cli.terminal.list_output import searched_boxes_note
    from cardbox_cli.cli.terminal.progress_bar import bar
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.gc import GarbageCollector, PurgeCounts, projects_with_rows

    with open_database() as database:
        names = projects_with_rows(database) if all_projects else [session().project_id]
        collectors = [GarbageCollector(database, name) for name in names]
        counts = [each.find(deleted=purge, latest=latest or None) for each in collectors]
        total = sum(counts, PurgeCounts())
        if dry_run or not total.total:
            purged = total
        else:
            where = "the whole database" if all_projects else f"project {session().project_id!r}"
            confirm(f"Purge {_describe_counts(total, deleted=purge)} of {where} permanently?", yes=yes)
            for each, count in zip(collectors, counts, strict=True):
                if count.total:
                    # Before the first batch, so that an interrupted purge is in the audit, too.
                    audit_in(database, each.project_id, "db gc", found=count)
            with bar("purging", total.total) as show:
                advance = _running_total(show)
                purges = (
                    each.purge(deleted=purge, batch_size=batch_size, advance=advance) for each in collectors
                )
                purged = sum(purges, PurgeCounts())
        dangling = [
            box
            for each in collectors
            for box in each.dangling(
                latest=latest or None, without_expired=dry_run, without_deleted=dry_run and purge
            )
        ]
        is_cut = bool(latest) and any(BoxStore(database, name).has_more_than(latest) for name in names)
    answer = {"dry_run": dry_run, "purged": purged, "dangling": dangling}
    summary = f"{'would purge' if dry_run else 'purged'} {_describe_counts(purged, deleted=purge)}"
    summary = summary if total.total else "nothing to purge"

    def table() -> None:
        output.print_text(summary)
        if dangling:
            print_table(_DANGLING_BOXES, dangling)

    output.emit(answer, table=table, ids=[box.box_id for box in dangling])
    if dangling:
        places = sum(box.count for box in dangling)
        state = "would be" if dry_run else "is" if places == 1 else "are"
        announce(
            f"{format_count(places, 'reference')} in {format_count(len(dangling), 'box')} {state} dangling;"
            f" see `cbx box verify {dangling[0].box_id}`"
        )
    if is_cut:
        announce(searched_boxes_note(latest))


_DANGLING_BOXES = (
    Column("BOX", lambda box: box.box_id),
    Column("DANGLING", lambda box: str(box.count), right=True),
    Column("PROJECT", lambda box: box.project_id),
)


def _describe_counts(counts: "PurgeCounts", *, deleted: bool) -> str:
    parts = [format_count(counts.expired, "expired card")]
    if deleted:
        parts.append(format_count(counts.deleted, "deleted card"))
    if counts.logs:
        parts.append(f"the stderr of {format_count(counts.logs, 'command')} of old turns")
    if counts.box_info:
        parts.append(f"the details of {format_count(counts.box_info, 'deleted box')}")
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]


def _running_total(show: Callable[[int], None]) -> Callable[[int], None]:
    """Return a callback for the size of each batch that passes the running total to `show`."""
    done = 0

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        show(done)

    return advance


@verb("destroy", "cbx db destroy --yes")
def destroy_database(yes: Yes = False) -> None:
    """Stop the embedded server and delete all its data."""
    server = embedded_server("destroy")
    confirm(f"Delete the embedded database of {server.home}, every project in it?", yes=yes)
    removed = [str(path) for path in server.destroy()]
    text = "\n".join(f"removed {path}" for path in removed) or "nothing to remove"
    output.emit({"removed": removed}, table=lambda: output.print_text(text))
