"""One batch of 500 children, against plain SQL that writes the same rows: the batch, its tasks, and of each
child the agent, context and turn.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import uuid6
from psycopg.types.json import Jsonb

from benchmarks.measure import Row, Side, at_most
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.execution.dispatch_requests import Caller
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.batches import new_batch_id
from cardbox_cli.model.handwritten.tasks import ForkJoin, Task
from cardbox_cli.orchestration.batch_creation import create_batch
from cardbox_cli.settings import Settings
from cardbox_cli.store.profiles import ProfileStore

_CHILDREN = 500
_TEXT = "Write the report"

# One statement: an agent with its head and its edge, two cards in a context box, an output box, and the turn.
_CHILD = """
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
_BATCH = """
INSERT INTO cbx.batches
    (project_id, batch_id, status, fail_fast, task_count, request_sha256, source_agent_id, channel_id,
     recursion_depth, trace_id, deadline_at, created_at)
VALUES (%(project)s, %(batch)s, 'running', false, 500, md5('x'), 'sys.operator', 'public', 0, md5(%(batch)s),
    now(), now())
"""
_TASK = """
INSERT INTO cbx.batch_tasks
    (project_id, batch_id, task_index, status, target_strategy, target_ref, agent_id, context_box_id,
     output_box_id, agent_turn_id, next_try_at, dispatched_at)
VALUES (%(project)s, %(batch)s, %(index)s, 'dispatched', 'new', 'writer', %(agent)s, %(context)s, %(output)s,
    %(turn)s, now(), now())
"""


@contextmanager
def _against_plain(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database, bench.database() as other, bench.connect(other) as plain:
        entries = []
        for each in (database, other):
            profile = {"name": "writer", "worker_target": "any", "tags": []}
            entries.append(ProfileStore(each, PROJECT).save(profile, author_id="bench"))
            settle(each)
        database.enable_prepared_statements()
        runtime = Runtime(database, PROJECT, settings=Settings(max_tasks=_CHILDREN))
        task = Task(target_strategy="new", target_ref="writer", instruction=_TEXT)
        asked = ForkJoin(tasks=[task] * _CHILDREN)

        def fork() -> None:
            create_batch(runtime, Caller(), asked)

        def write() -> None:
            batch = {"project": PROJECT, "batch": new_batch_id()}
            plain.execute(_BATCH, batch, prepare=True)
            for index in range(_CHILDREN):
                values = {**_ids(entries[1].profile_box_id), **batch, "index": index}
                plain.execute(_CHILD, values, prepare=True)
                plain.execute(_TASK, values, prepare=True)

        yield Side(run=fork, units=_CHILDREN), Side(run=write, units=_CHILDREN)


def _ids(profile_box_id: str) -> dict[str, object]:
    """The values of a child's rows: fresh ids, and contents of about the size that a delegation writes."""
    names = ("agent", "edge", "turn", "instruction", "pointer")
    return {
        "project": PROJECT,
        "profile": profile_box_id,
        **{name: f"{name}_{uuid6.uuid7().hex}" for name in names},
        **{name: str(uuid6.uuid7()) for name in ("context", "output")},
        "content": Jsonb({"__type__": "TextContent", "text": _TEXT}),
        "metadata": Jsonb({"type": "task.instruction", "role": "user", "of": _TEXT * 10}),
    }


ROWS = [
    Row(
        name="fork-join-sql",
        what="one batch of 500 children, each dispatched in a transaction of its own, per child",
        against="plain SQL that writes the same rows, a transaction for each child, prepared",
        felt_by="an agent that waits until its batch has begun",
        target=at_most(10),
        rounds=4,
        prepare=_against_plain,
    ),
]
