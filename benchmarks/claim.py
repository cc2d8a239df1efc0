"""Claiming and completing raw inbox rows, against plain SQL, a long history, and two job queues on Postgres.

Then what it takes to ask for work, and until a worker that waits has it. The queues are `queues.py`'s.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import set_json_loads

from benchmarks import queues
from benchmarks.measure import Row, Side, Target, at_least, at_most
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchRequest
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.queue import claims
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.notifications import Listener, notify, payload_filter
from cardbox_cli.store.profiles import ProfileStore

_OWNER = "bench"
_TARGET = "any"
_AGENTS = 1_000
_BACKLOG = 1_000
# How much longer than its enqueue a dispatch may take, with all that it checks and writes beside the job.
_ENQUEUE = {"pgqueuer": 1.6, "procrastinate": 1.1}

_ADD_AGENTS = """
WITH made AS (
    INSERT INTO resource.project_agents (project_id, agent_id, profile_box_id, worker_target)
    SELECT %(project)s, 'agent-' || n, gen_random_uuid(), %(target)s FROM generate_series(1, %(agents)s) AS n
    RETURNING project_id, agent_id
)
INSERT INTO state.agent_state_head (project_id, agent_id) SELECT project_id, agent_id FROM made
"""
# Ids begin with the time, as those of cbx do.
_ADD_ROWS = """
INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, correlation_id, agent_turn_id,
    turn_epoch, context_headers, payload, status, processed_at, archived_at)
SELECT %(project)s, 'inbox_' || id, 'agent-' || n %% %(agents)s + 1, 'tool_result', 'call_' || id,
    'turn_' || id, 1,
    jsonb_build_object('traceparent', '00-' || md5(n::text) || '-b7ad6b7169203331-01'),
    jsonb_build_object(
        'after_execution', 'suspend', 'status', 'success', 'tool_result_card_id', md5(n::text)),
    %(status)s, CASE WHEN %(status)s = 'consumed' THEN now() END,
    CASE WHEN %(status)s = 'consumed' THEN now() END
FROM generate_series(1, %(count)s) AS n,
    LATERAL (SELECT lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1e6)::bigint), 14, '0')
        || substr(md5(n::text || random()), 1, 18) AS id) AS made
"""

_CLAIM = """
WITH waiting AS (
    SELECT i.agent_id, i.next_retry_at
    FROM state.agent_inbox AS i
    JOIN resource.project_agents AS a ON a.project_id = i.project_id AND a.agent_id = i.agent_id
    WHERE i.project_id = %(project)s AND i.status IN ('pending', 'deferred') AND i.next_retry_at <= now()
        AND a.worker_target = %(target)s
    ORDER BY i.next_retry_at, i.created_at, i.inbox_id
    LIMIT 3 * %(limit)s
), held AS (
    SELECT h.agent_id
    FROM (SELECT agent_id, min(next_retry_at) AS since FROM waiting GROUP BY agent_id) AS due
    JOIN state.agent_state_head AS h ON h.project_id = %(project)s AND h.agent_id = due.agent_id
    ORDER BY due.since
    LIMIT %(limit)s
    FOR UPDATE OF h SKIP LOCKED
), picked AS (
    SELECT oldest.inbox_id
    FROM held
    CROSS JOIN LATERAL (
        SELECT i.inbox_id
        FROM state.agent_inbox AS i
        WHERE i.project_id = %(project)s AND i.agent_id = held.agent_id
            AND i.status IN ('pending', 'deferred') AND i.next_retry_at <= now()
        ORDER BY i.created_at, i.inbox_id
        LIMIT 1
    ) AS oldest
), claimed AS (
    UPDATE state.agent_inbox AS i
    SET status = 'processing', processed_at = now()
    FROM picked
    WHERE i.project_id = %(project)s AND i.inbox_id = picked.inbox_id AND i.status IN ('pending', 'deferred')
    RETURNING i.*
), leased AS (
    INSERT INTO cbx.leases (project_id, inbox_id, agent_id, agent_turn_id, turn_epoch, owner, claimed_at,
        heartbeat_at, expires_at)
    SELECT project_id, inbox_id, agent_id, agent_turn_id, turn_epoch, %(owner)s, now(), now(),
        now() + interval '60 seconds'
    FROM claimed
)
SELECT inbox_id, agent_id, message_type, correlation_id, agent_turn_id, turn_epoch, context_headers, payload,
    retry_count, created_at
FROM claimed
"""
# Whoever writes inbox rows holds the heads of their agents first, else two of them may wait for each other.
_COMPLETE = """
WITH held AS MATERIALIZED (
    SELECT agent_id
    FROM state.agent_state_head
    WHERE project_id = %(project)s AND agent_id = ANY(%(agents)s)
    ORDER BY agent_id
    FOR UPDATE
), mine AS (
    DELETE FROM cbx.leases
    WHERE project_id = %(project)s AND inbox_id = ANY(%(ids)s) AND owner = %(owner)s
        AND (SELECT count(*) FROM held) > 0
    RETURNING inbox_id
)
UPDATE state.agent_inbox AS i
SET status = 'consumed', archived_at = now()
FROM mine
WHERE i.project_id = %(project)s AND i.inbox_id = mine.inbox_id AND i.status = 'processing'
RETURNING i.inbox_id
"""


@contextmanager
def _inbox(bench: Workbench, *, finished: int = 0) -> Iterator[Database]:
    """A database with agents, due rows and so many finished ones, on a connection such as a worker's."""
    with bench.database() as database:
        names = {"project": PROJECT, "target": _TARGET, "agents": _AGENTS}
        database.connection.execute(_ADD_AGENTS, names)
        for status, count in (("consumed", finished), ("pending", _BACKLOG)):
            _add_rows(database.connection, status, count)
        settle(database)
        database.enable_prepared_statements()
        yield database


def _claiming(database: Database, batch: int) -> Side:
    runtime = Runtime(database, PROJECT)

    def run() -> None:
        claimed = claims.claim(runtime, target=_TARGET, owner=_OWNER, limit=batch)
        done = runtime.inbox.consume([each.row.inbox_id for each in claimed], owner=_OWNER)
        _check(len(done), batch)

    return Side(before=partial(_refill, database.connection, batch), run=run, units=batch)


def _plain(connection: psycopg.Connection[Any], batch: int) -> Side:
    set_json_loads(msgspec.json.decode, connection)
    names = {"project": PROJECT, "target": _TARGET, "owner": _OWNER, "limit": batch}

    def run() -> None:
        rows = connection.execute(_CLAIM, names, prepare=True).fetchall()
        claimed = {"ids": [row[0] for row in rows], "agents": [row[1] for row in rows]}
        done = connection.execute(_COMPLETE, {**names, **claimed}, prepare=True)
        _check(len(done.fetchall()), batch)

    return Side(before=partial(_refill, connection, batch), run=run, units=batch)


def _refill(connection: psycopg.Connection[Any], count: int) -> None:
    _add_rows(connection, "pending", count)


def _add_rows(connection: psycopg.Connection[Any], status: str, count: int) -> None:
    parameters = {"project": PROJECT, "agents": _AGENTS, "status": status, "count": count}
    connection.execute(_ADD_ROWS, parameters)


def _check(done: int, batch: int) -> None:
    if done != batch:
        raise RuntimeError(f"{done} rows were completed, not {batch}")


@contextmanager
def _against_plain(bench: Workbench, batch: int) -> Iterator[tuple[Side, Side]]:
    with _inbox(bench) as database, _inbox(bench) as other, bench.connect(other) as connection:
        yield _claiming(database, batch), _plain(connection, batch)


@contextmanager
def _against_no_history(bench: Workbench, batch: int, finished: int) -> Iterator[tuple[Side, Side]]:
    with _inbox(bench, finished=finished) as database, _inbox(bench) as other:
        yield _claiming(database, batch), _claiming(other, batch)


@contextmanager
def _against_queue(bench: Workbench, open_queue: queues.Open, batch: int) -> Iterator[tuple[Side, Side]]:
    with _inbox(bench) as database, bench.database() as other, open_queue(bench, other) as queue:
        queue.put(_BACKLOG)
        settle(other)

        def run() -> None:
            _check(queue.work(batch), batch)

        yield _claiming(database, batch), Side(before=partial(queue.put, batch), run=run, units=batch)


class _Agent:
    """An agent that can be asked for a turn, and ends the one that it has."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.runtime = Runtime(database, PROJECT)
        profile = {"name": "writer", "worker_target": _TARGET, "tags": []}
        ProfileStore(database, PROJECT).save(profile, author_id="bench")
        provision(database, PROJECT, AgentRequest(agent_id="writer", profile_name="writer"))
        card = draft_card("task.instruction", "Write the report")
        self.runtime.cards.add(card)
        self.box_id = self.runtime.boxes.create([card.card_id]).box_id
        settle(database)
        database.enable_prepared_statements()

    def ask(self) -> None:
        """Dispatch a turn to it, which it gets at once."""
        request = DispatchRequest(target_agent_id="writer", context_box_id=self.box_id)
        if dispatch(self.runtime, request).result.turn_epoch is None:
            raise RuntimeError("the agent is busy")

    def end(self) -> bool:
        """Claim its turn and end it; False where it has none."""
        claimed = claims.claim(self.runtime, target=_TARGET, owner=_OWNER)
        for each in claimed:
            claims.ack(self.runtime, each.row.inbox_id, owner=_OWNER)
        return bool(claimed)


@contextmanager
def _asking(bench: Workbench, open_queue: queues.Open) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database, bench.database() as other, open_queue(bench, other) as queue:
        agent = _Agent(database)
        settle(other)
        yield Side(before=agent.end, run=agent.ask), Side(run=partial(queue.put_one))


@contextmanager
def _starting(bench: Workbench, open_queue: queues.Open) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database, bench.database() as other, open_queue(bench, other) as queue:
        agent = _Agent(database)
        settle(other)
        with _worker(database) as ours, queue.worker() as theirs:
            yield _start(partial(_ask_and_ring, agent), ours), _start(queue.put_one, theirs)


def _start(ask: Callable[[], object], work: queues.Work) -> Side:
    def run() -> None:
        ask()
        work.begun.wait(60)

    return Side(before=work.wait_for_end, run=run)


def _ask_and_ring(agent: _Agent) -> None:
    agent.ask()
    notify(agent.database, (PROJECT, _TARGET))


@contextmanager
def _worker(database: Database) -> Iterator[queues.Work]:
    """A thread that claims what it is woken for, and ends it."""
    work, stopped = queues.Work(), Event()
    listener = Listener(database.target, payload_filter(PROJECT, [_TARGET]), print)

    def serve() -> None:
        with Database.connect(database.target) as own:
            own.enable_prepared_statements()
            runtime = Runtime(own, PROJECT)
            while not stopped.is_set():
                claimed = claims.claim(runtime, target=_TARGET, owner=_OWNER)
                for each in claimed:
                    work.begun.set()
                    claims.ack(runtime, each.row.inbox_id, owner=_OWNER)
                    work.ended.set()
                if not claimed:
                    listener.wait(60)

    thread = Thread(target=serve)
    thread.start()
    try:
        yield work
    finally:
        stopped.set()
        listener.interrupt()
        thread.join()
        listener.close()


def _queue_row(
    name: str, open_queue: queues.Open, batch: int, rounds: int, felt_by: str, target: Target
) -> Row:
    rows = f"batches of {batch}" if batch > 1 else "one at a time"
    return Row(
        name=f"claim-{batch}-{name}",
        what=f"claims.claim and inbox.consume of rows, {rows}, per row",
        against=f"{name}: the same of jobs, {rows}",
        felt_by=felt_by,
        target=target,
        rounds=rounds,
        prepare=partial(_against_queue, open_queue=open_queue, batch=batch),
    )


ROWS = [
    Row(
        name="claim-100-sql",
        what="claims.claim and inbox.consume of rows, batches of 100, per row",
        against="the best plain SQL of the same effect, prepared",
        felt_by="a fleet of workers that works off a backlog",
        target=at_least(0.8),
        rounds=40,
        prepare=partial(_against_plain, batch=100),
    ),
    Row(
        name="claim-100-history",
        what="the same with 1,000,000 finished rows in the table",
        against="with none",
        felt_by="a fleet of workers whose project has run for months",
        target=at_most(1.3),
        rounds=40,
        prepare=partial(_against_no_history, batch=100, finished=1_000_000),
    ),
    _queue_row(
        "pgqueuer", queues.pgqueuer, 100, 40, "a fleet of workers that works off a backlog", at_least(0.5)
    ),
    *(
        _queue_row(name, open_queue, 1, 100, "a worker that takes one turn after another", at_least(1))
        for name, open_queue in queues.ALL.items()
    ),
    *(
        Row(
            name=f"enqueue-{name}",
            what="dispatch of a turn to an idle agent, with all checks",
            against=f"{name}: enqueue of a job",
            felt_by="a program that dispatches a turn for each request that it gets",
            target=at_most(_ENQUEUE[name]),
            rounds=40,
            prepare=partial(_asking, open_queue=open_queue),
        )
        for name, open_queue in queues.ALL.items()
    ),
    Row(
        name="start-procrastinate",
        what="dispatch and ring, until a worker that waits has claimed the turn",
        against="procrastinate: enqueue, until a worker that waits runs the job",
        felt_by="a person who waits for an agent to begin",
        target=at_most(1),
        rounds=40,
        prepare=partial(_starting, open_queue=queues.procrastinate),
    ),
]
