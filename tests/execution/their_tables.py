"""Tests on the tables of another program, to which cbx has added its own."""

import pytest

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.migrations.upgrade import add_missing_tables
from tests.conftest import PROJECT
from tests.foreign.writer import Deployment


class OnTheirTables:
    """A class of tests that inherits this runs there."""

    @pytest.fixture
    def target(self, foreign_target: Target) -> Target:
        return foreign_target

    @pytest.fixture
    def runtime(self, database: Database, deployment: Deployment) -> Runtime:
        add_missing_tables(database)
        database.clear_table_cache()
        return Runtime(database, PROJECT)
