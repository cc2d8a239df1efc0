"""Reading turns goes by indexes, so that a project may have had a million of them."""

from collections.abc import Iterator

import pytest

from cardbox_cli.errors import AmbiguousId
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.in_use import BoxUseStore
from cardbox_cli.store.views.inbox_views import InboxFilter, InboxViews
from cardbox_cli.store.views.turn_views import TurnFilter, TurnViews
from tests.conftest import PROJECT
from tests.store.test_plans import Explaining, indexes

TURN = "turn_00000000000000000000000000004321"
BOX = "00000000-0000-7000-8000-000000004321"
FILL = """
INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, correlation_id, agent_turn_id, payload,
    status, created_at)
SELECT 'p', turn_id, CASE WHEN n % 1000 = 0 THEN 'seldom' ELSE 'agent-' || n % 200 END, 'turn', turn_id, turn_id,
    jsonb_build_object('context_box_id', box_id, 'output_box_id', box_id, 'profile_box_id', box_id),
    CASE WHEN n > 19990 THEN 'queued' WHEN n % 1000 = 1 THEN 'skipped' ELSE 'consumed' END, now() - (20000 - n) * interval '15 seconds'
FROM generate_series(1, 20000) AS n,
    LATERAL (SELECT 'turn_' || lpad(n::text, 32, '0'), '00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))
        AS made (turn_id, box_id);
INSERT INTO cbx.turns (project_id, agent_turn_id, agent_id, end_status)
SELECT i.project_id, i.agent_turn_id, i.agent_id, CASE WHEN i.status <> 'queued' THEN 'success' END
FROM state.agent_inbox AS i;
INSERT INTO state.execution_edges (project_id, edge_id, primitive, edge_phase, target_agent_id,
    target_agent_turn_id, correlation_id, recursion_depth, trace_id)
SELECT i.project_id, i.inbox_id, 'enqueue', 'request', i.agent_id, i.agent_turn_id, i.inbox_id, 0, right(i.inbox_id, 4)
FROM state.agent_inbox AS i;
INSERT INTO state.agent_state_head (project_id, agent_id) SELECT 'p', 'agent-' || n FROM generate_series(0, 199) AS n;
ANALYZE
"""


@pytest.fixture
def explaining(target: Target) -> Iterator[Explaining]:
    with Database.open_target(target) as filling:
        filling.connection.execute(FILL)
    with Explaining.connect(target) as opened:
        assert isinstance(opened, Explaining)
        opened.plans = {}
        yield opened


def test_no_query_reads_all_rows(explaining: Explaining) -> None:
    turns, inbox = TurnViews(explaining, PROJECT), InboxViews(explaining, PROJECT)
    [newest] = turns.newest(limit=1)
    for where in (TurnFilter(), TurnFilter(agent_id="agent-7"), TurnFilter(status="ended")):
        assert list(turns.newest(where, limit=20))
    assert len(list(turns.newest(TurnFilter(status="queued")))) == 10
    assert turns.further(TurnFilter(status="queued"), newest).count == 9
    assert turns.further(TurnFilter(status="ended"), newest).count > 9_900
    assert TURN in [turn.agent_turn_id for turn in turns.newest(TurnFilter(trace_id="4321"))]
    assert turns.resolve(TURN) == TURN
    assert turns.resolve(TURN[-8:]) == TURN
    with pytest.raises(AmbiguousId):
        turns.resolve(TURN[-8:-1])
    assert turns.read_all(TURN).turn.agent_turn_id == TURN
    assert list(inbox.newest(limit=20))
    assert list(inbox.newest(InboxFilter(status="error"))) == []
    use = BoxUseStore(explaining, PROJECT)
    use.refuse_change([BOX])
    use.refuse_delete(BOX)
    # A count reads 10,001 rows at most, here half of all.
    plans = {name: plan for name, plan in explaining.plans.items() if name != "count_further_turns"}
    assert [name for name, plan in plans.items() if "Seq Scan on agent_inbox" in plan] == []
    assert "idx_turns_suffix" in explaining.plans["find_kept_turn_ids"]
    assert "idx_turns_shown" in explaining.plans["find_kept_turn_ids"]
    assert "idx_inbox_created" in explaining.plans["list_turns"]
    assert "idx_inbox_dead" in explaining.plans["list_dead_inbox"]
    assert "idx_execution_edges_trace" in explaining.plans["turns_of_trace"]


def test_turns_of_an_agent_and_skipped_rows_are_found_by_index(explaining: Explaining) -> None:
    turns, inbox = TurnViews(explaining, PROJECT), InboxViews(explaining, PROJECT)
    for agent, limit in (("seldom", 50), ("agent-7", 20), ("nobody", 20)):
        list(turns.newest(TurnFilter(agent_id=agent), limit=limit))
        assert by_agent(explaining.plans["list_turns"])
        list(inbox.newest(InboxFilter(agent_id=agent, status="consumed"), limit=limit))
        assert by_agent(explaining.plans["list_inbox"])
    assert len(list(inbox.newest(InboxFilter(status="skipped")))) == 20
    assert indexes(explaining.plans["list_skipped_inbox"]) == {"idx_inbox_skipped"}
    explaining.rows("why_turn_of_agent", project_id=PROJECT, agent_id="seldom")
    assert by_agent(explaining.plans["why_turn_of_agent"])


def by_agent(plan: str) -> bool:
    """Whether the rows are found by their agent, and nothing goes through those of others."""
    return (
        "idx_inbox_agent" in indexes(plan)
        and "idx_inbox_created" not in indexes(plan)
        and "Seq Scan on agent_inbox" not in plan
    )
