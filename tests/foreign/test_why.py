"""`cbx why` without the tables of cbx: who is silent is suspect, and the fixes say what they need."""

import shlex

from tests.conftest import Cbx
from tests.foreign import scenes
from tests.foreign.writer import Deployment


def test_without_leases_no_worker_is_called_dead(deployment: Deployment, cbx: Cbx) -> None:
    turn = scenes.running(deployment)
    name = deployment.connection.info.dbname
    deployment.connection.execute(f"ALTER DATABASE {name} SET cbx.clock_offset = '1 hour'")
    answer = cbx("why", turn.agent_turn_id)
    assert "suspect" in answer.out
    assert "this database has no leases" in answer.out
    fix = next(line for line in answer.out.splitlines() if line.startswith("fix"))
    refused = cbx(*shlex.split(fix, comments=True)[2:])
    assert refused.code == 7
    assert "cbx db init" in refused.err
