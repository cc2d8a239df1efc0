"""Packing is tried on both servers: the embedded one and Debian's PostgreSQL 15."""

import pytest

from tests.conftest import served
from tests.databases import Databases


@pytest.fixture(
    scope="session", params=["embedded_databases", "debian_databases"], ids=["embedded", "debian15"]
)
def databases(request: pytest.FixtureRequest) -> Databases:
    """Each test of this folder that asks for a database runs once on each server."""
    return served(request, request.param)
