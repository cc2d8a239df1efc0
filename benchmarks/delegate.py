"""Delegating tasks to fresh agents, against plain SQL that writes the same rows: agent, context, turn."""

from collections.abc import Iterator
from contextlib import contextmanager

import uuid6
from psycopg.types.json import Jsonb

from benchmarks.measure import Row, Side
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.execution.dispatch.caller import Caller
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.handwritten.tasks import Task
from cardbox_cli.orchestration.delegate import delegate
from cardbox_cli.store.profiles import ProfileStore

_AT_ONCE = 100

# One statement: an agent with its head and its edge, two cards in a context box, an output box, and the turn.
CHILD_ROWS = """
WITH agent AS (
    INSERT INTO resource.project_agents
        (project_id, agent_id, profile_box_id, worker_target, owner_agent_id, metadata)
    VALUES (%(project)s, %(agent)s, %(profile)s, 'any', 'sys.operator', '{"profile_name": "writer"}')
), identity AS (
    INSERT INTO state.identity_edges (edge_id, project_id, action, source_agent_id, target_agent_id, metadata)
    VALUES (%(edge)s, %(project)s, 'provision', 'sys.operator', %(agent)s, '{"profile_name": "writer"}')
), head AS (
    INSERT INTO state.agent_state_head
        (project_id, agent_id, status, turn_epoch, active_agent_turn_id, active_channel_id, trace_id,
         profile_box_id, context_box_id, output_box_id)
    VALUES (%(project)s, %(agent)s, 'dispatched', 1, %(turn)s, 'public', md5(%(turn)s), %(profile)s,
        %(context)s, %(output)s)
), cards AS (
    INSERT INTO public.cards (card_id, tenant_id, content, metadata)
    VALUES (%(instruction)s, %(project)s, %(content)s, %(metadata)s),
        (%(pointer)s, %(project)s, %(content)s, %(metadata)s)
), boxes AS (
    INSERT INTO public.card_boxes (tenant_id, box_id, card_ids)
    VALUES (%(project)s, %(context)s, jsonb_build_array(%(instruction)s::text, %(pointer)s::text)),
        (%(project)s, %(output)s, '[]')
), info AS (
    INSERT INTO cbx.box_info (project_id, box_id, title, provenance)
    VALUES (%(project)s, %(context)s, 'delegate for writer', %(metadata)s)
), inbox AS (
    INSERT INTO state.agent_inbox
        (project_id, inbox_id, agent_id, message_type, enqueue_mode, correlation_id, agent_turn_id,
         turn_epoch, channel_id, context_headers, payload, status)
    VALUES (%(project)s, %(turn)s, %(agent)s, 'turn', 'call', %(turn)s, %(turn)s, 1, 'public', %(metadata)s,
        jsonb_build_object('profile_box_id', %(profile)s::text, 'context_box_id', %(context)s::text,
            'output_box_id', %(output)s::text), 'pending')
), edge AS (
    INSERT INTO state.execution_edges
        (project_id, edge_id, channel_id, primitive, edge_phase, source_agent_id, target_agent_id,
         target_agent_turn_id, correlation_id, enqueue_mode, recursion_depth, trace_id, metadata)
    VALUES (%(project)s, %(edge)s, 'public', 'enqueue', 'request', 'sys.operator', %(agent)s, %(turn)s,
        %(turn)s, 'call', 0, md5(%(turn)s), %(metadata)s)
)
INSERT INTO cbx.turns (project_id, agent_turn_id, agent_id, output_start)
VALUES (%(project)s, %(turn)s, %(agent)s, 0)
"""

TEXT = "Write the report"


@contextmanager
def _against_plain(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database, bench.database() as other, bench.connect(other) as plain:
        entries = []
        for each in (database, other):
            profile = {"name": "writer", "worker_target": "any", "tags": []}
            entries.append(ProfileStore(each, PROJECT).save(profile, author_id="bench"))
            settle(each)
        database.keep_plans()
        runtime = Runtime(database, PROJECT)
        task = Task(target_strategy="new", target_ref="writer", instruction=TEXT)

        def ask() -> None:
            for _ in range(_AT_ONCE):
                delegate(runtime, Caller(), task)

        def write() -> None:
            for _ in range(_AT_ONCE):
                plain.execute(CHILD_ROWS, ids(entries[1].profile_box_id), prepare=True)

        yield Side(run=ask, units=_AT_ONCE), Side(run=write, units=_AT_ONCE)


def ids(profile_box_id: str) -> dict[str, object]:
    """What one delegation writes: fresh ids, and contents of about the size."""
    names = ("agent", "edge", "turn", "instruction", "pointer")
    return {
        "project": PROJECT,
        "profile": profile_box_id,
        **{name: f"{name}_{uuid6.uuid7().hex}" for name in names},
        **{name: str(uuid6.uuid7()) for name in ("context", "output")},
        "content": Jsonb({"__type__": "TextContent", "text": TEXT}),
        "metadata": Jsonb({"type": "task.instruction", "role": "user", "of": TEXT * 10}),
    }


ROWS = [
    Row(
        name="delegate-sql",
        what="1,000 delegations to fresh agents, each in a transaction of its own, per delegation",
        against="one statement of plain SQL that writes the same rows, prepared",
        target=None,
        rounds=10,
        prepare=_against_plain,
    ),
]
