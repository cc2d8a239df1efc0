"""Who is at the root of a lock: as pure values, and with sessions that really wait for each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import psycopg
import pytest

from cardbox_cli.diagnosis.locks import find_root_locks, first_words
from cardbox_cli.model.execution.situations import DatabaseSession, HeldLock
from tests.crash.processes import until
from tests.diagnosis.conftest import World


def session(
    pid: int, *blocked_by: int, seconds: float | None = 60, waited: float | None = None
) -> DatabaseSession:
    waits_for = "cbx.turns" if blocked_by else None
    return DatabaseSession(pid, "app", "active", seconds, 1, None, list(blocked_by), waits_for, waited)


HEAD = HeldLock("state.agent_state_head", "clerk", "row", True, 1)


@pytest.mark.parametrize(
    ("held", "sessions", "expected"),
    [
        pytest.param(HEAD, [session(1)], [("state.agent_state_head", "clerk", 1, 60, 0)], id="the holder"),
        pytest.param(
            HEAD,
            [session(1, 2, seconds=20, waited=15), session(2, 3, waited=30), session(3, seconds=90)],
            [("cbx.turns", "a row", 3, 20, 2)],
            id="followed, no older than what is in the way",
        ),
        pytest.param(
            HEAD,
            [session(1, 2, 3, waited=15), session(2), session(3)],
            [("cbx.turns", "a row", 2, 60, 1), ("cbx.turns", "a row", 3, 60, 1)],
            id="two at the root",
        ),
        pytest.param(HEAD, [session(1, 0, waited=5)], [("cbx.turns", "a row", 0, 60, 1)], id="prepared"),
        pytest.param(HEAD, [session(1, 2), session(2, 1)], [], id="a deadlock, which the server ends"),
        pytest.param(
            HeldLock("cbx.turns", None, "AccessExclusiveLock", False, 1),
            [session(1, 2, waited=12), session(2, seconds=900), session(4, 1, waited=11)],
            [("cbx.turns", None, 2, 12, 2)],
            id="one that is only wanted",
        ),
        pytest.param(
            HEAD,
            [session(1, seconds=None), session(2, 1, seconds=None, waited=33)],
            [("state.agent_state_head", "clerk", 1, 33, 1)],
            id="ages that this role may not see",
        ),
    ],
)
def test_a_chain_of_locks_is_followed_to_its_root(
    held: HeldLock, sessions: list[DatabaseSession], expected: list[Any]
) -> None:
    found = find_root_locks([held], {each.pid: each for each in sessions})
    assert [
        (lock.table, lock.row, lock.session.pid, lock.seconds, lock.blocked) for lock in found
    ] == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("alter table state.agent_inbox add column x text", "alter table state.agent_inbox"),
        ("UPDATE cards SET content = 'secret'", "UPDATE cards SET"),
        ("/* token=hunter2 */ -- more\n (SELECT 'secret'", "SELECT"),
        ("SELECT E'\\x1b[2J', U&'x'", "SELECT"),
        ("LOCK\ttable\x1b[31m cards", "LOCK table"),
        ("<insufficient privilege>", None),
        ("", None),
        (None, None),
    ],
)
def test_only_the_first_words_of_a_query_are_shown(query: str | None, expected: str | None) -> None:
    assert first_words(query) == expected


# --- real sessions


@contextmanager
def another(world: World, name: str) -> Iterator[tuple[psycopg.Connection[Any], int]]:
    """A session of somebody else's, and its process."""
    dsn = world.runtime.database.connection.info.dsn
    with psycopg.connect(dsn, password="", application_name=name) as connection:
        yield connection, connection.info.backend_pid


@contextmanager
def waiting(world: World, connection: psycopg.Connection[Any], statement: str) -> Iterator[None]:
    """While a session waits for a lock to execute a statement."""

    def execute() -> None:
        try:
            connection.execute(statement.encode())
        except psycopg.Error:
            connection.rollback()

    thread = Thread(target=execute)
    thread.start()
    pid = connection.info.backend_pid
    asked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %(pid)s"
    try:
        until(lambda: world.sql(asked, pid=pid) == [(1,)])
        yield
    finally:
        connection.cancel_safe(timeout=120)
        thread.join()


def test_a_waiting_worker_is_not_the_holder_of_a_lock(world: World) -> None:
    turn = world.ask()
    with another(world, "psql") as (holder, pid), another(world, "cbx") as (worker, waits):
        holder.execute("SELECT agent_id, 'hunter2' FROM cbx.turns FOR UPDATE")
        worker.execute("SELECT FROM state.agent_state_head FOR UPDATE")
        with waiting(world, worker, "UPDATE cbx.turns SET output_start = 1"):
            world.later(40)
            found = world.why(turn)
    assert (found["rule"], found["fix"]) == ("database-lock", None)
    assert found["next_actor"] == f"the owner of database process {pid}: end its transaction"
    told = {each["row"]: each["shows"] for each in found["evidence"] if each["table"] == "cbx.turns"}
    assert set(told) == {turn, "a row"}
    assert told[turn].startswith(
        f"process {pid} (psql, idle in transaction, SELECT agent_id, 40 s ago) has held it for 40 s"
    )
    blocked = f"has blocked process {waits} (cbx, active, UPDATE cbx.turns SET, 40 s ago) for 40 s"
    assert blocked in told["a row"]
    assert "hunter2" not in str(found)


def test_a_reader_that_blocks_an_alter_table_is_named(world: World) -> None:
    """Everybody waits behind who waits for the reader; `why` waits for none of them."""
    turn = world.ask()
    with another(world, "report") as (reader, pid), another(world, "migration") as (changer, waits):
        reader.execute("SELECT FROM state.agent_inbox")
        with waiting(world, changer, "ALTER TABLE state.agent_inbox ADD COLUMN later text"):
            world.later(11)
            for asked in (["why", turn], ["why", "--agent", "clerk"], ["why", "--all"]):
                answer = world.cbx(*asked, "-o", "json")
                assert answer.code == 8, answer
                found = answer.json()[0] if "--all" in asked else answer.json()
                assert found["rule"] == "database-lock"
                assert f"process {pid}:" in found["next_actor"]
                [evidence] = found["evidence"]
                assert evidence["table"] == "state.agent_inbox"
                assert f"process {waits} (migration, active, ALTER TABLE" in evidence["shows"]
            assert "no turn was examined: a table is not readable" in answer.err
    assert world.why(turn)["rule"] != "database-lock"


def test_an_unreadable_table_is_reported_within_ten_seconds(world: World) -> None:
    turn = world.ask()
    with another(world, "psql") as (holder, pid):
        holder.execute("LOCK TABLE state.agent_steps")
        found = world.why(turn)
    assert (found["rule"], found["turn"]) == ("database-lock", turn)
    assert f"process {pid}:" in found["next_actor"]
