"""Tests of the cluster itself: they run wherever there is one, whatever other tests run on."""

import pytest

from tests.databases import Databases


@pytest.fixture
def databases(sharded_databases: Databases) -> Databases:
    return sharded_databases
