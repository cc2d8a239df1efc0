"""One batch of 500 children, against plain SQL that writes the same rows: the batch, its tasks, and of each
child the agent, context and turn.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.delegate import CHILD_ROWS, TEXT, ids
from benchmarks.measure import Row, Side
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.execution.dispatch.caller import Caller
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.batches import new_batch_id
from cardbox_cli.model.handwritten.batches import ForkJoin
from cardbox_cli.model.handwritten.tasks import Task
from cardbox_cli.orchestration.batches.creation import create_batch
from cardbox_cli.settings import Settings
from cardbox_cli.store.profiles import ProfileStore

_CHILDREN = 500

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
        database.keep_plans()
        runtime = Runtime(database, PROJECT, settings=Settings(max_tasks=_CHILDREN))
        task = Task(target_strategy="new", target_ref="writer", instruction=TEXT)
        asked = ForkJoin(tasks=[task] * _CHILDREN)

        def fork() -> None:
            create_batch(runtime, Caller(), asked)

        def write() -> None:
            batch = {"project": PROJECT, "batch": new_batch_id()}
            plain.execute(_BATCH, batch, prepare=True)
            for index in range(_CHILDREN):
                values = {**ids(entries[1].profile_box_id), **batch, "index": index}
                plain.execute(CHILD_ROWS, values, prepare=True)
                plain.execute(_TASK, values, prepare=True)

        yield Side(run=fork, units=_CHILDREN), Side(run=write, units=_CHILDREN)


ROWS = [
    Row(
        name="fork-join-sql",
        what="one batch of 500 children, each dispatched in a transaction of its own, per child",
        against="plain SQL that writes the same rows, a transaction for each child, prepared",
        target=None,
        rounds=4,
        prepare=_against_plain,
    ),
]
