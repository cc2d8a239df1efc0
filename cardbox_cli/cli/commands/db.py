"""`cbx db`: the embedded server's life, the tables, garbage, and psql."""

import shutil
from collections.abc import Callable, Sequence
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
from cardbox_cli.limits import BOXES_LOOKED_INTO
from cardbox_cli.text import format_bytes, format_count

if TYPE_CHECKING:
    from cardbox_cli.store.embedded import EmbeddedServer
    from cardbox_cli.store.gc import Dangling, Rubbish
    from cardbox_cli.store.views.database_status import ProjectSize


def embedded_server(action: str) -> "EmbeddedServer":
    target = database_target()
    if not target.embedded:
        raise UsageError(
            f"`cbx db {action}` is for the embedded server, and {target.named_by} names another database",
            hint=f"unset {target.named_by}, or manage that server with its own tools",
        )
    return target.server()


@verb("start", "cbx db start")
def start_server() -> None:
    """Start the embedded server; any command that needs it does so too."""
    from cardbox_cli.store.views.database_status import database_status

    started = embedded_server("start").start()
    with open_database() as database:
        answer = database_status(database)
    announce("started" if started else "it runs already")
    output.emit(answer, table=lambda: print_status(answer))


@verb("stop", "cbx db stop")
def stop_server() -> None:
    """Stop the embedded server. Nothing is lost; the next command starts it again."""
    stopped = embedded_server("stop").stop()
    output.emit(
        {"stopped": stopped}, table=lambda: output.print_text("stopped" if stopped else "it was not running")
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
        bool, Option("--exact", help="Count every row. Without it, large tables show an estimate, ~.")
    ] = False,
) -> None:
    """Say which database commands talk to, where its files are, and what it holds. Starts nothing."""
    from cardbox_cli.store.views.database_status import target_status

    answer = target_status(database_target(), session().project_id, exact=exact)

    output.emit(answer, table=lambda: print_status(answer))


def print_status(answer: dict[str, Any]) -> None:
    """Print a status, whichever keys it has."""
    named = {
        _TABLE_NAMES.get(key, key.replace("_", " ")): _shown_status(key, value)
        for key, value in answer.items()
    }
    output.facts(*named.items())
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


def _index_line(there: bool) -> str:
    return "yes" if there else "no; `cbx db index-text` builds it"


_TABLE_NAMES = {"size_bytes": "size"}


_SHOWN: dict[str, Callable[[Any], str | None]] = {
    "tables": lambda names: (
        f"{len(names)}, listed below" if names else "none; `cbx db init --yes` makes them"
    ),
    "unreadable_tables": lambda names: ", ".join(names) or None,
    "distributed": lambda spread: (
        f"{format_count(spread.tables, 'table')} by project, over {format_count(spread.shards, 'shard')}"
        f" on {format_count(spread.nodes, 'node')}"
    ),
    "pooler": lambda there: "yes; plans are not kept, and workers hear no notifications" if there else "no",
    "keeps_plans": lambda kept: "yes, by workers" if kept else "no",
    "text_index": _index_line,
    "bigram_index": _index_line,
    "size_bytes": format_bytes,
    "project": _project_line,
    # They have a table of their own.
    "table_sizes": lambda _: None,
}


def _shown_status(key: str, value: Any) -> str | None:
    if value is None:
        return None
    if key in _SHOWN:
        return _SHOWN[key](value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


@verb("url", 'psql "$(cbx db url)"', "DATABASE_URL=$(cbx db url) ./my-agent")
def print_url() -> None:
    """Print the database's address for other programs; starts the embedded server. Passwords are left out."""
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
    arguments: Annotated[list[str] | None, Argument(metavar="-- ARGS", help="Passed on to psql.")] = None,
) -> int:
    """Open psql on the database."""
    from cardbox_cli.store.connection.target import psql_environment

    target = database_target()
    with open_database():
        pass
    bundled = target.server().program("psql")
    own = shutil.which("psql")
    program = str(bundled) if target.embedded or own is None else own
    return session().process.run_program(program, arguments or [], psql_environment(target))


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
        announce(f"{format_count(len(parts), 'table')} would be added; run it with --yes to add them")


@verb("upgrade", "cbx db upgrade --dry-run", "cbx db upgrade")
def upgrade_database(
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

    with Database.connect(database_target()) as database:
        plan = upgrading.plan_upgrade(database) if dry_run else upgrading.upgrade(database, announce)
    answer = {"before": plan.before, "after": plan.after, "dry_run": dry_run, "sql": plan.script}
    text = f"schema version {plan.after}" + ("" if plan.before == plan.after else f", was {plan.before}")
    output.emit(answer, table=lambda: output.print_text(plan.script if dry_run and plan.steps else text))


# --- distribute


_DISTRIBUTION = (
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
    from cardbox_cli.store.migrations.distribution import GLOBAL_IDS

    with Database.connect(database_target()) as database:
        plan = distribution.plan_distribution(database)
        if plan.steps and not dry_run:
            announce(f"the index {GLOBAL_IDS} goes: {_DISTRIBUTION}")
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
        else "every table of projects is distributed already"
    )
    output.emit(
        answer,
        table=lambda: output.print_text(plan.script if dry_run and plan.steps else text),
        ids=names,
    )
    if dry_run and plan.steps:
        announce(f"it drops the index {GLOBAL_IDS}: {_DISTRIBUTION}")


@verb("index-text", "cbx db index-text")
def index_text() -> None:
    """Build the indexes that make searching fast. They slow imports down.

    One is of words, the other of pairs of characters in Chinese, Japanese and Korean.
    """
    from cardbox_cli.store.cards import index_text as build_indexes

    with open_database() as database:
        built = build_indexes(database, announce)
    there = f"{' and '.join(built)} {'is' if len(built) == 1 else 'are'} there"
    names = dict(zip(("index", "bigram_index"), [*built, None], strict=False))
    output.emit(names, table=lambda: output.print_text(there))


@verb(
    "gc",
    "cbx db gc --dry-run",
    "cbx db gc --yes",
    "cbx db gc --purge --all-projects --yes -o json | jq .purged",
)
def collect_garbage(
    purge: Annotated[bool, Option("--purge", help="Purge soft-deleted cards, too.")] = False,
    all_projects: Annotated[
        bool, Option("--all-projects", help="The whole database, not only --project.")
    ] = False,
    batch_size: Annotated[
        int, Option(metavar="N", min=1, help="Rows per transaction.", show_default=True)
    ] = 1000,
    latest: Latest = BOXES_LOOKED_INTO.value,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be purged.")] = False,
    yes: Yes = False,
) -> None:
    """Purge expired cards, and the logs of turns that are older than 30 days, for ever.

    Works in small transactions that wait for no writer: stopped in the middle it loses nothing, and a second
    run finishes. Boxes stay as they are; references that then lead nowhere are reported, of the boxes of each
    project that changed last.
    """
    from cardbox_cli.cli.terminal.list_output import looked_into
    from cardbox_cli.cli.terminal.progress_bar import bar
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.gc import Collector, Rubbish, projects

    with open_database() as database:
        names = projects(database) if all_projects else [session().project_id]
        collectors = [Collector(database, name) for name in names]
        finds = [each.find(deleted=purge, latest=latest or None) for each in collectors]
        found = sum(finds, Rubbish())
        if dry_run or not found.total:
            purged = found
        else:
            where = "the whole database" if all_projects else f"project {session().project_id!r}"
            confirm(f"Purge {_counted(found, deleted=purge)} of {where} for ever?", yes=yes)
            for each, rubbish in zip(collectors, finds, strict=True):
                if rubbish.total:
                    # Before the first batch: one that is stopped in the middle has its row.
                    audit_in(database, each.project_id, "db gc", found=rubbish)
            with bar("purging", found.total) as show:
                advance = _summed(show)
                purges = (
                    each.purge(deleted=purge, batch_size=batch_size, advance=advance) for each in collectors
                )
                purged = sum(purges, Rubbish())
        dangling = [
            box
            for each in collectors
            for box in each.dangling(
                latest=latest or None, without_expired=dry_run, without_deleted=dry_run and purge
            )
        ]
        is_cut = bool(latest) and any(BoxStore(database, name).are_more_than(latest) for name in names)
    answer = {"dry_run": dry_run, "purged": purged, "dangling": dangling}
    summary = f"{'would purge' if dry_run else 'purged'} {_counted(purged, deleted=purge)}"
    summary = summary if found.total else "nothing to purge"
    output.emit(answer, table=lambda: _print_rubbish(summary, dangling), ids=[box.box_id for box in dangling])
    if dangling:
        places = sum(box.count for box in dangling)
        lead = "would lead" if dry_run else "leads" if places == 1 else "lead"
        announce(
            f"{format_count(places, 'reference')} in {format_count(len(dangling), 'box')} {lead} to no card;"
            " `cbx box verify BOX` shows where"
        )
    if is_cut:
        announce(looked_into(latest))


def _print_rubbish(summary: str, dangling: "Sequence[Dangling]") -> None:
    output.print_text(summary)
    if dangling:
        print_table(_DANGLING_BOXES, dangling)


_DANGLING_BOXES = (
    Column("BOX", lambda box: box.box_id),
    Column("DANGLING", lambda box: str(box.count), right=True),
    Column("PROJECT", lambda box: box.project_id),
)


def _counted(rubbish: "Rubbish", *, deleted: bool) -> str:
    parts = [format_count(rubbish.expired, "expired card")]
    if deleted:
        parts.append(format_count(rubbish.deleted, "deleted card"))
    if rubbish.logs:
        parts.append(f"what {format_count(rubbish.logs, 'command')} of old turns wrote on stderr")
    if rubbish.box_info:
        parts.append(f"what is known of {format_count(rubbish.box_info, 'box')} that is gone")
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]


def _summed(show: Callable[[int], None]) -> Callable[[int], None]:
    """What to call with the size of each batch, so that `show` gets how many rows went so far."""
    done = 0

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        show(done)

    return advance


@verb("destroy", "cbx db destroy --yes")
def destroy_database(yes: Yes = False) -> None:
    """Stop the embedded server and delete all of its data."""
    server = embedded_server("destroy")
    confirm(f"Delete the embedded database of {server.home}, every project in it?", yes=yes)
    removed = [str(path) for path in server.destroy()]
    text = "\n".join(f"removed {path}" for path in removed) or "there was nothing to remove"
    output.emit({"removed": removed}, table=lambda: output.print_text(text))
