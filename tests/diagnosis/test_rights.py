"""What a role may not do: `why` tells a closed table from an absent one, workers say what they are refused."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import Cbx
from tests.crash.processes import until
from tests.diagnosis.conftest import World

SCHEMAS = "public, resource, state, cbx"


@pytest.fixture
def role(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A role that may read everything; commands run as it."""
    name = f"reader_{world.runtime.database.connection.info.dbname[-12:]}"
    world.sql(f"CREATE ROLE {name} LOGIN")
    world.sql(f"GRANT USAGE ON SCHEMA {SCHEMAS} TO {name}")
    world.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMAS} TO {name}")
    monkeypatch.setenv("CBX_DATABASE_URL", f"{os.environ['CBX_DATABASE_URL']} user={name}")
    yield name
    world.sql(f"DROP OWNED BY {name}")
    world.sql(f"DROP ROLE {name}")


def revoke(world: World, role: str, table: str) -> None:
    world.sql(f"REVOKE SELECT ON {table} FROM {role}")  # noqa: S608  # our own names


class TestUnreadableTables:
    def test_without_leases_no_worker_is_called_healthy_or_dead(self, world: World, role: str) -> None:
        turn = world.ask()
        world.enter()
        assert world.why(turn)["rule"] == "running"
        revoke(world, role, "cbx.leases")
        for seconds in (0, 61, 301):
            world.later(seconds)
            found = world.why(turn)
            assert (found["verdict"], found["rule"]) == ("unknown", "table-unreadable")
            assert found["fix"] is None
        assert f'GRANT SELECT ON cbx.leases TO "{role}"' in found["next_actor"]
        assert "cbx.leases" in [each["table"] for each in found["evidence"]]
        assert world.problems() == {turn: "table-unreadable"}

    @pytest.mark.parametrize("table", ["cbx.workers", "cbx.turns", "cbx.audit"])
    def test_findings_from_readable_tables_are_still_reported(
        self, world: World, role: str, table: str
    ) -> None:
        asked = world.asked()
        turn = asked.agent_turn_id or ""
        world.later(31)
        revoke(world, role, table)
        expected = "table-unreadable" if table == "cbx.workers" else "no-live-worker"
        found = world.why(turn)
        assert found["rule"] == expected
        world.sql("DELETE FROM card_boxes WHERE box_id = %(box)s::uuid", box=asked.context_box_id)
        found = world.why(turn)
        assert found["rule"] == "missing-box"
        assert "table-unreadable" in [each["rule"] for each in found["also"]]

    def test_commands_distinguish_unreadable_tables_from_missing_ones(self, world: World, role: str) -> None:
        world.sql(f"REVOKE USAGE ON SCHEMA cbx FROM {role}")
        answer = world.cbx("worker", "list")
        assert (answer.code, answer.err) == (
            7,
            f"error: the database role '{role}' may not read the table cbx.turns\n"
            f'hint: GRANT USAGE ON SCHEMA cbx TO "{role}"; GRANT SELECT ON cbx.turns TO "{role}"\n',
        )
        status = world.cbx("db", "status", "-o", "json").json()
        assert {"cbx.leases", "cbx.turns"} <= set(status["unreadable_tables"])

    @pytest.mark.parametrize("is_gone", [False, True])
    def test_no_names_are_suggested_if_the_roster_is_unreadable_or_missing(
        self, world: World, role: str, is_gone: bool
    ) -> None:
        """An unknown agent is one without a turn then; no table is missed for what might have been meant."""
        world.asked()
        words = ("render", "--agent", "wroker"), ("cost", "--agent", "wroker"), ("why", "--agent", "wroker")
        assert [world.cbx(*each).code for each in words] == [3, 3, 3]
        if is_gone:
            world.sql("DROP TABLE resource.project_agents CASCADE")
        else:
            revoke(world, role, "resource.project_agents")
        for each in words[:2]:
            answer = world.cbx(*each)
            assert (answer.code, answer.err.splitlines()[0]) == (
                3,
                f"error: agent 'wroker' has no turn in project {world.runtime.project_id!r}",
            )


@contextmanager
def a_worker() -> Iterator[None]:
    """A process that serves, and looks every moment."""
    quick = {"CBX_HEARTBEAT": "0.1", "CBX_POLL": "0.1", "CBX_LEASE": "30"}
    words = [sys.executable, "-m", "cardbox_cli", "worker", "run", "--exec", "true"]
    with subprocess.Popen(words, env=os.environ | quick, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def test_a_worker_reports_a_missing_permission(world: World, role: str, cbx: Cbx) -> None:
    """It may announce itself and do nothing else; once it may, it works and takes it back."""
    world.sql(f"GRANT INSERT, UPDATE, DELETE ON cbx.workers TO {role}")
    turn = world.ask()
    with a_worker():
        until(lambda: world.sql("SELECT last_error FROM cbx.workers") not in ([], [(None,)]))
        ((error, since, now),) = world.sql("SELECT last_error, last_error_at, now() FROM cbx.workers")
        assert error.startswith("the database role may not do this: permission denied for table")
        assert since <= now
        [listed] = cbx("worker", "list", "-o", "json").json()
        assert (listed["live"], listed["last_error"]) == (True, error)
        assert " unable " in cbx("worker", "list").out

        world.sql("UPDATE state.agent_inbox SET created_at = now() - interval '1 h', next_retry_at = now()")
        world.sql("UPDATE state.agent_state_head SET updated_at = now() - interval '1 h'")
        world.sql("UPDATE state.agent_inbox SET next_retry_at = now() - interval '1 h'")
        found = world.why(turn)
        assert (found["rule"], found["fix"]) == ("worker-cannot-work", None)
        assert error in str(found["evidence"])

        world.sql(f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {SCHEMAS} TO {role}")
        until(lambda: world.sql("SELECT last_error, last_error_at FROM cbx.workers") == [(None, None)])
        until(lambda: world.sql("SELECT end_status FROM cbx.turns") != [(None,)])
    assert world.why(turn)["verdict"] == "ended"
