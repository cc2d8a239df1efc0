"""Every test here runs on a database as an existing deployment has it."""

from collections.abc import Iterator

import psycopg
import pytest

from cardbox_cli.store.connection.target import Target
from tests.foreign.tables import Connection
from tests.foreign.writer import Deployment


@pytest.fixture
def target(foreign_target: Target) -> Target:
    return foreign_target


@pytest.fixture
def connection(target: Target) -> Iterator[Connection]:
    with psycopg.connect(target.conninfo or "", autocommit=True) as opened:
        yield opened


@pytest.fixture
def deployment(connection: Connection) -> Deployment:
    return Deployment(connection)
