"""Shards take every statement, and one task is enough for all that name a project."""

import re
from collections.abc import Iterator

import psycopg
import pytest

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.queries import query
from cardbox_cli.store.connection.target import Target
from tests.sharded.statements import failure, names, tasks

# Statements that no EXPLAIN takes, or that are of tables which other programs make.
_APART = re.compile(r"CREATE (TEMP|INDEX)|^(COPY|LISTEN|TRUNCATE|SET|EXPLAIN) |pmo_batch", re.MULTILINE)
# What any value of the right type is not enough for: it fails on one server in the same way.
_PICKY = {"22023", "22P02", "23514"}

# Never sent to shards: `InboxStore.claim` has a lease written by a statement of its own there.
REFUSED = {"claim_due", "claim_due_by_agent"}
NAMES = [name for name in names() if not _APART.search(query(name))]


@pytest.fixture(scope="module")
def connection(sharded_databases: object) -> Iterator[psycopg.Connection]:
    target: Target = sharded_databases.target("")  # type: ignore[attr-defined]
    with Database.connect(target) as database:
        for name in names():
            text = query(name)
            if "CREATE TEMP TABLE" in text:
                database.connection.execute(text.replace("ON COMMIT DROP", "").encode())
        yield database.connection


def test_shards_accept_every_statement(connection: psycopg.Connection) -> None:
    found = {name: failure(connection, query(name)) for name in NAMES}
    refused = {name: text for name, text in found.items() if text.partition(" ")[0] not in {"", *_PICKY}}
    assert refused.keys() - REFUSED == set(), refused


def test_a_statement_of_one_project_is_one_task(connection: psycopg.Connection) -> None:
    of_projects = [name for name in NAMES if "-- across-projects: " not in query(name)]
    found = {name: tasks(connection, query(name)) for name in of_projects if name not in REFUSED}
    # Of tables that are not distributed there is none.
    assert {name: counts for name, counts in found.items() if not counts <= {1}} == {}
    assert sum(counts == {1} for counts in found.values()) > 200
