"""Claims stay cheap and fair: whatever is finished, and whatever waits for few agents or for another target."""

from collections.abc import Iterator

import pytest

from cardbox_cli.execution.claims import ack_many, claim
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.store.database import Database
from cardbox_cli.store.target import Target
from tests.conftest import PROJECT
from tests.store.test_plans import Explaining, scanned_whole

# Agents 1 to 3 of target `near` have 1,500 due rows each, agents 4 to 6 of `far` too, all older than the one row of
# each of the agents 7 to 206, which are of `near`.
FILL = """
INSERT INTO resource.project_agents (project_id, agent_id, profile_box_id, worker_target)
SELECT 'p', 'agent-' || n, gen_random_uuid(), CASE WHEN n BETWEEN 4 AND 6 THEN 'far' ELSE 'near' END
FROM generate_series(1, 2000) AS n;
INSERT INTO state.agent_state_head (project_id, agent_id) SELECT 'p', 'agent-' || n FROM generate_series(1, 2000) AS n;
INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, correlation_id, status, next_retry_at,
    created_at)
SELECT 'p', 'inbox_' || n, 'agent-' || CASE WHEN n <= 9000 THEN n % 6 + 1 ELSE n - 8994 END, 'tool_result', 'call_' || n,
    CASE WHEN n > 9200 THEN 'consumed' ELSE 'pending' END,
    now() - (20000 - n) * interval '1 second', now() - (20000 - n) * interval '1 second'
FROM generate_series(1, 9200) AS n;
INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, correlation_id, status)
SELECT 'p', 'done_' || n, 'agent-' || n % 200, 'tool_result', 'done_' || n, 'consumed'
FROM generate_series(1, 20000) AS n;
ANALYZE
"""


@pytest.fixture
def explaining(target: Target) -> Iterator[Explaining]:
    with Database.open_target(target) as filling:
        filling.script(FILL)
    with Explaining.connect(target) as opened:
        assert isinstance(opened, Explaining)
        opened.plans = {}
        yield opened


def taken(database: Database, target: str | None, limit: int) -> list[str]:
    claimed = claim(Runtime(database, PROJECT), target=target, owner="w", limit=limit)
    return [each.row.agent_id for each in claimed]


@pytest.mark.parametrize("kept", [False, True])
def test_a_claim_reads_no_table_whole(explaining: Explaining, kept: bool) -> None:
    if kept:
        assert explaining.keep_plans()
    assert len(taken(explaining, "near", 10)) == 10
    assert explaining.plans.keys() >= {"claim_due", "more_due", "claim_due_by_agent"}
    for name in ("claim_due", "more_due", "claim_due_by_agent"):
        assert "agent_inbox" not in scanned_whole(explaining.plans[name])
    assert "idx_inbox_due" in explaining.plans["claim_due"]
    assert "idx_inbox_open" in explaining.plans["claim_due_by_agent"]


def test_what_waits_for_few_agents_hides_no_other(explaining: Explaining) -> None:
    first = taken(explaining, "near", 5)
    assert first == ["agent-2", "agent-3", "agent-1", "agent-7", "agent-8"]


def test_what_waits_for_another_target_hides_nothing(explaining: Explaining) -> None:
    explaining.connection.execute(
        "UPDATE state.agent_inbox SET status = 'consumed' WHERE agent_id IN ('agent-1', 'agent-2', 'agent-3')"
    )
    assert taken(explaining, "near", 3) == ["agent-7", "agent-8", "agent-9"]
    assert taken(explaining, None, 4) == ["agent-4", "agent-5", "agent-6", "agent-10"]
    assert taken(explaining, "far", 9) == ["agent-4", "agent-5", "agent-6"]


def test_plans_that_are_kept_serve_every_target(explaining: Explaining) -> None:
    explaining.keep_plans()
    runtime = Runtime(explaining, PROJECT)
    for target in ("near", "far", None) * 3:
        claimed = claim(runtime, target=target, owner="w", limit=3)
        assert len(claimed) == 3
        done = ack_many(runtime, [each.row.inbox_id for each in claimed], owner="w")
        assert sorted(done) == sorted(each.row.inbox_id for each in claimed)
    kept = explaining.connection.execute("SELECT statement FROM pg_prepared_statements").fetchall()
    assert any("agent_inbox" in statement for (statement,) in kept)
