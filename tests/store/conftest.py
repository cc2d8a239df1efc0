"""The stores are tested on both servers: the embedded one and Debian's PostgreSQL 15."""

import pytest

from tests.conftest import served
from tests.databases import Databases


@pytest.fixture(params=["embedded", "debian"])
def databases(request: pytest.FixtureRequest) -> Databases:
    return served(request, f"{request.param}_databases")
