"""Status of a database: its address, its software, its content and its size.

Read-only, and fast on a large database. For tables above `COUNTED_BYTES`, numbers are estimates from the
planner's statistics unless the caller requests exact ones. The project's rows are counted up to
`COUNTED_ROWS`. Each number has a flag for counted or estimated.
"""

from datetime import timedelta
from typing import Any

import msgspec
from psycopg import sql

from cardbox_cli.store.cards import BIGRAM_INDEX, WORD_INDEX
from cardbox_cli.store.connection import driver_errors
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target, hide_password
from cardbox_cli.store.migrations.files import newest

# Reading this much takes milliseconds. Only small tables lack statistics.
COUNTED_BYTES = 8_000_000
# With an index, counting this many takes 0.1 s. Statistics do not cover a small or new project.
COUNTED_ROWS = 100_000
_CARDS, _BOXES = "public.cards", "public.card_boxes"


class TableSize(msgspec.Struct, frozen=True):
    """A table with sizes in bytes. `rows` is counted if `exact`. Otherwise it is an estimate, or None."""

    table: str
    rows: int | None
    exact: bool
    bytes: int
    index_bytes: int


class ProjectSize(msgspec.Struct, frozen=True):
    """Content of a project: all its cards, including hidden ones, and its boxes. Estimates unless `…_exact`.

    `expired` and `deleted` count hidden cards, or are None. A card that is both counts as deleted.
    """

    project_id: str
    cards: int
    cards_exact: bool
    expired: int | None
    deleted: int | None
    boxes: int
    boxes_exact: bool


class Distributed(msgspec.Struct, frozen=True):
    """Number of distributed tables, number of shards per table, and number of nodes."""

    tables: int
    shards: int
    nodes: int


def target_status(target: Target, project_id: str, *, exact: bool = False) -> dict[str, Any]:
    """Return the status of `target` and the project's content. Starts and changes nothing.

    Raises DatabaseUnavailable if the server does not answer, unless it is the embedded server.
    """
    if target.embedded and not target.server().status().running:
        return {"database": "embedded", "running": False, **_embedded_places(target)}
    with Database.connect(target) as database, database.snapshot():
        return {**database_status(database), **_contents(database, project_id, exact)}


def database_status(database: Database) -> dict[str, Any]:
    """Return the status of a database that is connected."""
    target = database.target
    info = database.connection.info
    version = f"{info.server_version // 10000}.{info.server_version % 10000}"
    address = hide_password(target.conninfo or "") or "libpq's environment"
    own_server = {"named_by": target.named_by, "address": address}
    return {
        "database": "embedded" if target.embedded else "your own server",
        "running": True,
        "postgres": version,
        **(_embedded_places(target) if target.embedded else own_server),
        "schema_version": database.schema_version(),
        "schema_version_of_this_cbx": newest(),
        "tables": sorted(database.tables),
        "unreadable_tables": sorted(database.closed_tables),
        "one_result_per_tool_call": database.unique_tool_results,
    }


def _contents(database: Database, project_id: str, exact: bool) -> dict[str, Any]:
    citus = database.value("engine")
    tables = _table_sizes(database, exact)
    return {
        "engine": "Postgres" if citus is None else f"Citus {citus}",
        "distributed": _distributed(database),
        "role": "replica" if database.is_replica else "primary",
        "pooler": not database.direct,
        "keeps_plans": database.can_prepare,
        "text_index": bool(database.value("index_exists", index=WORD_INDEX)),
        "bigram_index": bool(database.value("index_exists", index=BIGRAM_INDEX)),
        "size_bytes": database.value("database_size"),
        "table_sizes": tables,
        "project": _project_size(database, project_id, {size.table: size.exact for size in tables}),
    }


def _distributed(database: Database) -> Distributed | None:
    spread = sum(database.distributed_tables().values())
    if not spread:
        return None
    row = database.row("shards_and_nodes", table=_CARDS)
    assert row is not None
    return Distributed(spread, *row)


def _table_sizes(database: Database, exact: bool) -> list[TableSize]:
    sizes = []
    spread = [name for name, is_spread in database.distributed_tables().items() if is_spread]
    entries = database.rows("table_sizes", names=sorted(database.tables.difference(spread)))
    # The statistics of the coordinator do not include rows on other nodes.
    entries += [(*row, None) for row in (database.rows("distributed_sizes", names=spread) if spread else [])]
    for table, in_rows, in_indexes, estimate in sorted(entries):
        counted = exact or in_rows <= COUNTED_BYTES
        rows = _count(database, table) if counted else estimate
        sizes.append(TableSize(table, rows, counted, in_rows, in_indexes))
    return sizes


def _count(database: Database, table: str) -> int:
    counting = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(*table.split(".")))
    with driver_errors.translate_errors():
        row = database.connection.execute(counting).fetchone()
    assert row is not None
    return int(row[0])


def _project_size(database: Database, project_id: str, counted: dict[str, bool]) -> ProjectSize | None:
    """Return the size of the project, or None if the tables of cards and boxes do not exist."""
    if not {_CARDS, _BOXES} <= counted.keys():
        return None
    if counted[_CARDS]:
        row = database.row("count_cards", project_id=project_id)
        assert row is not None
        (cards, expired, deleted), cards_exact = row, True
    else:
        (cards, cards_exact), expired, deleted = _count_or_estimate(database, "cards", project_id), None, None
    if counted[_BOXES]:
        boxes, boxes_exact = database.value("count_boxes", project_id=project_id), True
    else:
        boxes, boxes_exact = _count_or_estimate(database, "boxes", project_id)
    return ProjectSize(project_id, cards, cards_exact, expired, deleted, boxes, boxes_exact)


def _count_or_estimate(database: Database, things: str, project_id: str) -> tuple[int, bool]:
    """Return the number of cards or boxes in the project, and True if it is counted, not estimated."""
    counted = database.value(f"count_some_{things}", project_id=project_id, limit=COUNTED_ROWS + 1)
    if counted <= COUNTED_ROWS:
        return counted, True
    [explained] = database.value(f"plan_{things}", project_id=project_id)
    return max(counted, int(explained["Plan"]["Plan Rows"])), False


def _embedded_places(target: Target) -> dict[str, Any]:
    status = target.server().status()
    places = {name: str(getattr(status, name)) for name in ("home", "data", "socket", "log")}
    return {**places, "programs": str(status.binaries), "account": status.account, "pid": status.pid}


class ReplicaLag(msgspec.Struct, frozen=True):
    """Delay of a replica behind its primary, or None if the delay is unknown."""

    behind: timedelta | None


def replica_lag(database: Database) -> ReplicaLag | None:
    """Return the delay of the server, or None for a primary.

    The delay is zero if the replica is connected and has replayed everything it received. Otherwise it is the
    age of the last replayed transaction, which is too long if the primary is idle.
    """
    row = database.row("replica_lag")
    return None if row is None else ReplicaLag(row[0])
