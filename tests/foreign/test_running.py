"""After `cbx db init` turns run there: cbx's tables stand beside the others, which stay as they are."""

import pytest

from tests.cli.conftest import succeed
from tests.conftest import Cbx
from tests.foreign.scenes import suspended
from tests.foreign.tables import definitions, rows
from tests.foreign.writer import Deployment


@pytest.fixture
def initialized(cbx: Cbx) -> Cbx:
    """`cbx` on a deployment that has got cbx's tables."""
    succeed(cbx("db", "init", "--yes"))
    return cbx


def test_init_adds_tables_of_cbx_and_touches_no_other(deployment: Deployment, cbx: Cbx) -> None:
    suspended(deployment)
    defined, filled = definitions(deployment.connection), rows(deployment.connection)
    added = cbx("db", "init", "--yes", "-o", "json").json()["added"]
    assert [name for name in added if not name.startswith("cbx.")] == []
    after = definitions(deployment.connection)
    theirs = {kind: [row for row in found if not row[0].startswith("cbx.")] for kind, found in after.items()}
    assert theirs == defined
    assert {name: found for name, found in rows(deployment.connection).items() if name in filled} == filled


def test_upgrade_touches_no_other_either(deployment: Deployment, initialized: Cbx) -> None:
    deployment.connection.execute("UPDATE cbx.schema_version SET version = 2")
    defined = definitions(deployment.connection)
    assert initialized("db", "upgrade", "-o", "json").json() == {"before": 2, "after": 3}
    assert definitions(deployment.connection) == defined
