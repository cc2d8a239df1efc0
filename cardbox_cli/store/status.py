"""What there is to say of a database: where it is, what runs there, which tables it has. Read-only."""

from typing import Any

from cardbox_cli.store.database import SCHEMA_VERSION, Database
from cardbox_cli.store.target import Target, hide_password


def target_status(target: Target) -> dict[str, Any]:
    """The status of `target`, starting nothing.

    Raises DatabaseUnavailable for a server that does not answer, unless it is the embedded one.
    """
    if target.embedded and not target.server().status().running:
        return {"database": "embedded", "running": False, **_embedded_places(target)}
    with Database.connect(target) as database:
        return database_status(database)


def database_status(database: Database) -> dict[str, Any]:
    """The status of a database that answers."""
    target = database.target
    info = database.connection.info
    version = f"{info.server_version // 10000}.{info.server_version % 10000}"
    where = _embedded_places(target) if target.embedded else _server_place(target)
    return {
        "database": "embedded" if target.embedded else "your own server",
        "running": True,
        "postgres": version,
        **where,
        "schema_version": database.schema_version(),
        "schema_version_of_this_cbx": SCHEMA_VERSION,
        "tables": sorted(database.tables),
        "one_result_per_tool_call": database.unique_tool_results,
    }


def _embedded_places(target: Target) -> dict[str, Any]:
    status = target.server().status()
    return {
        "home": str(status.home),
        "data": str(status.data),
        "socket": str(status.socket),
        "log": str(status.log),
        "account": status.account,
        "pid": status.pid,
    }


def _server_place(target: Target) -> dict[str, Any]:
    return {
        "named_by": target.named_by,
        "address": hide_password(target.conninfo or "") or "libpq's environment",
    }
