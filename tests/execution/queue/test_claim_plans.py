"""Claiming, dispatching and reaping read what is open and nothing else, however much is finished."""

from collections.abc import Iterator

import msgspec
import pytest

from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchRequest, Parent
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.queue.claims import claim
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.recovery.reaping import reap, report_lost
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.profiles import ProfileStore
from tests.conftest import PROJECT
from tests.store.test_plans import Explaining, indexes

# 20,000 rows that are done, and of the last agents 40 that are due.
FILL = """
INSERT INTO resource.project_agents (project_id, agent_id, profile_box_id, worker_target)
SELECT 'p', 'agent-' || n, gen_random_uuid(), 'desk' FROM generate_series(0, 199) AS n;
INSERT INTO state.agent_state_head (project_id, agent_id, status, active_agent_turn_id, turn_epoch)
SELECT 'p', 'agent-' || n, CASE WHEN n < 40 THEN 'dispatched' ELSE 'idle' END, 'due-' || n, 1
FROM generate_series(0, 199) AS n;
INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, correlation_id, agent_turn_id,
    turn_epoch, status, created_at, next_retry_at)
SELECT 'p', 'turn-' || n, 'agent-' || n % 200, 'turn', 'turn-' || n, 'turn-' || n, 1, 'consumed',
    now() - (20000 - n) * interval '15 seconds', now() - (20000 - n) * interval '15 seconds'
FROM generate_series(1, 20000) AS n;
INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, correlation_id, agent_turn_id,
    turn_epoch, status)
SELECT 'p', 'due-' || n, 'agent-' || n, 'turn', 'due-' || n, 'due-' || n, 1, 'pending'
FROM generate_series(0, 39) AS n;
INSERT INTO cbx.turns (project_id, agent_turn_id, agent_id, end_status, report_to)
SELECT project_id, agent_turn_id, agent_id, CASE status WHEN 'consumed' THEN 'success' END,
    jsonb_build_object('agent_id', 'x', 'agent_turn_id', 'turn-x', 'tool_call_id', inbox_id)
FROM state.agent_inbox;
INSERT INTO state.turn_waiting_tools (project_id, agent_id, agent_turn_id, turn_epoch, tool_call_id, step_id, tool_name,
    wait_status)
SELECT project_id, agent_id, agent_turn_id, 1, inbox_id, 's', 'look', 'applied' FROM state.agent_inbox;
ANALYZE
"""
LARGE = ("agent_inbox", "turn_waiting_tools", "turns")


@pytest.fixture
def explaining(target: Target) -> Iterator[Explaining]:
    with Database.open_target(target) as filling:
        filling.script(FILL)
    with Explaining.connect(target) as opened:
        assert isinstance(opened, Explaining)
        opened.plans = {}
        yield opened


def whole(plans: dict[str, str]) -> list[str]:
    """The queries that read a large table from one end to the other."""
    return [name for name, plan in plans.items() for table in LARGE if f"Seq Scan on {table} " in plan]


def test_a_claim_uses_the_partial_indexes(explaining: Explaining) -> None:
    runtime = Runtime(explaining, PROJECT, settings=Settings())
    assert len(claim(runtime, target="desk", owner="w", limit=8)) == 8
    # Nothing for this target: all that is due is looked at.
    assert claim(runtime, target="other", owner="w", limit=8) == []
    assert "idx_inbox_due" in indexes(explaining.plans["claim_due"])
    assert whole(explaining.plans) == []
    read = set.union(*(indexes(plan) for name, plan in explaining.plans.items() if "due" in name))
    assert {name for name in read if "inbox" in name} <= {
        *("idx_inbox_due", "idx_inbox_open", "agent_inbox_pkey")
    }


def test_a_dispatch_reads_no_table_in_full(explaining: Explaining) -> None:
    profile = {"name": "clerk", "worker_target": "desk", "tags": []}
    ProfileStore(explaining, PROJECT).save(profile, author_id="t")
    provision(explaining, PROJECT, AgentRequest(agent_id="clerk", profile_name="clerk"))
    runtime = Runtime(explaining, PROJECT, settings=Settings())
    context, output = (runtime.boxes.create([]).box_id for _ in range(2))
    explaining.plans.clear()
    request = DispatchRequest(
        target_agent_id="clerk",
        context_box_id=context,
        output_box_id=output,
        correlation_id="c",
        parent=Parent(agent_turn_id="due-1"),
    )
    found = [dispatch(runtime, request).result.queue_position]
    request = msgspec.structs.replace(request, correlation_id="d", output_box_id=None)
    found.append(dispatch(runtime, request).result.queue_position)
    assert found == [None, 1]
    assert explaining.plans.keys() == {"dispatch_situation", "write_turn"}
    with runtime.transaction():
        head = runtime.heads.lock("clerk")
        assert head is not None
        runtime.heads.free(head.fence, "end")
        assert promote_next(runtime, "clerk") is not None
    assert {"promotion_situation", "promote_turn"} <= explaining.plans.keys()
    assert whole(explaining.plans) == []


def test_reaping_reads_only_open_rows(explaining: Explaining) -> None:
    runtime = Runtime(explaining, PROJECT, settings=Settings())
    claim(runtime, target="desk", owner="w", limit=8)
    explaining.connection.execute("SELECT set_config('cbx.clock_offset', '5 minutes', false)")
    explaining.plans.clear()
    reaped = reap(runtime)
    assert (len(reaped.released), len(reaped.notified)) == (8, 1)
    assert whole(explaining.plans) == []


def test_a_child_that_ended_before_its_parent_waits_is_found_by_index(explaining: Explaining) -> None:
    explaining.connection.execute(
        "UPDATE state.agent_state_head SET status = 'suspended' WHERE agent_id = 'agent-1'"
    )
    runtime = Runtime(explaining, PROJECT, settings=Settings())
    assert report_lost(runtime, "due-1") == []
    assert whole(explaining.plans) == []
