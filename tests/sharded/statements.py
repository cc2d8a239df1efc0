"""Every named query as the shards get it: with a value for each parameter, of the type that the server takes it for."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq import DiagnosticField

from cardbox_cli.store.connection import queries
from tests.store.sql_rules import numbered

_FILES = Path(queries.__file__).parents[1] / "sql"
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_ID = "018f0000-0000-7000-8000-000000000000"
_BASES = {
    "bool": "true", "int2": "1", "int4": "1", "int8": "1", "numeric": "1", "float8": "1", "text": _ID, "uuid": _ID,
    "timestamptz": "2026-01-01 00:00:00Z", "interval": "1 minute", "jsonb": "{}", "json": "{}", "regclass": "pg_class", "bytea": "\\x" + "00" * 32,
}  # fmt: skip


def names() -> list[str]:
    """All named queries, in order."""
    return [name for file in sorted(_FILES.glob("*.sql")) for name in _NAME.findall(file.read_text())]


def failure(connection: psycopg.Connection[Any], text: str) -> str:
    """What the server says against a query that it is sent with likely values; empty where it does it."""
    sql, _ = numbered(text)
    pgconn = connection.pgconn
    with connection.transaction(force_rollback=True):
        prepared = pgconn.prepare(b"", sql.encode())
        if refusal := _refusal(prepared):
            return refusal
        described = pgconn.describe_prepared(b"")
        values = [_value(connection, described.param_type(at)) for at in range(described.nparams)]
        return _refusal(pgconn.exec_params(sql.encode(), values))


def tasks(connection: psycopg.Connection[Any], text: str) -> set[int]:
    """How many tasks the nodes get for each part of a query that is sent to them."""
    sql, _ = numbered(text)
    pgconn = connection.pgconn
    with connection.transaction(force_rollback=True):
        pgconn.prepare(b"", sql.encode())
        described = pgconn.describe_prepared(b"")
        values = [_value(connection, described.param_type(at)) for at in range(described.nparams)]
        explained = pgconn.exec_params(b"EXPLAIN " + sql.encode(), values)
        if refusal := _refusal(explained):
            raise AssertionError(refusal)
        lines = [(explained.get_value(row, 0) or b"").decode() for row in range(explained.ntuples)]
    return {int(found[1]) for line in lines if (found := re.search(r"Task Count: (\d+)", line))}


def _refusal(result: Any) -> str:
    state = result.error_field(DiagnosticField.SQLSTATE)
    return "" if state is None else f"{state.decode()} {result.error_message.decode().splitlines()[0]}"


def _value(connection: psycopg.Connection[Any], oid: int) -> bytes:
    info = connection.adapters.types.get(oid)
    assert info, oid
    base = _BASES[info.name]
    return (f"{{{base}}}" if oid == info.array_oid else base).encode()


def each() -> Iterator[tuple[str, str]]:
    """Each query: its name and text."""
    return ((name, queries.query(name)) for name in names())
