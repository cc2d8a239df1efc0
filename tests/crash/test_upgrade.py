"""`cbx db upgrade` from every earlier version, killed at every statement: the next run goes on where it died."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.migrations.steps import Step
from cardbox_cli.store.migrations.upgrade import plan_upgrade
from cardbox_cli.store.migrations.version import newest
from tests.cli.conftest import succeed
from tests.crash.harness import Connection, Scene, Stage, value
from tests.crash.processes import until
from tests.databases import TEMPLATE, Databases
from tests.foreign.tables import definitions, without_file_numbers
from tests.store.migrations.old import DUMPS, script, version

MakeStage = Callable[..., Stage]

# Those that end a version, and no way to it.
ENDS = [dump for dump in DUMPS if dump == f"version_{version(dump)}"]
# The way of the last is the one that most databases will go; that of the first passes every step, and takes long.
EVERY_DAY = (max(ENDS, key=version),)
# However many rows there are, they are two numbers, whatever their order and that of the columns.
DATA = sql.SQL("SELECT count(*), sum(hashtextextended(to_jsonb(t)::text, 0)) FROM {} AS t")
FILLED = "SELECT schemaname, relname FROM pg_stat_user_tables WHERE relname <> 'schema_version'"
BUILDING = "SELECT pid FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting for%'"


def defined(connection: Connection) -> dict[str, list[Any]]:
    return without_file_numbers(definitions(connection))


def data(connection: Connection) -> dict[tuple[str, str], Any]:
    names = connection.execute(FILLED).fetchall()
    return {name: connection.execute(DATA.format(sql.Identifier(*name))).fetchone() for name in names}


def next_step(connection: Connection) -> Step | None:
    steps = plan_upgrade(Database.adopt(connection)).steps
    return steps[0] if steps else None


def kill_throughout(scene: Scene, step: Step) -> Step:
    """Kill upgrades at every statement of their first step, and around its COMMIT; what is left of it.

    Of a step that is not whole each of them leaves less: an index that is there is not built again.
    """
    number, left = 1, step
    while number <= len(left.statements):
        scene.kill(f"script:{number}", "db", "upgrade")
        with scene.connection() as connection:
            now = next_step(connection)
        assert now == left or (now is not None and not step.whole and less(now, left))
        number, left = number + (now == left), now
    if step.whole:
        scene.kill("commit:1", "db", "upgrade")
    return left


def less(now: Step, before: Step) -> bool:
    """Whether a step is an earlier one without some of its statements, but with its last two."""
    return (
        now.name == before.name
        and len(now.statements) < len(before.statements)
        and now.statements == [each for each in before.statements if each in now.statements]
        and now.statements[-2:] == before.statements[-2:]
    )


@pytest.mark.parametrize("rows", [1_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "dump", [pytest.param(dump, marks=() if dump in EVERY_DAY else pytest.mark.soak) for dump in ENDS]
)
def test_killed_at_every_statement(dump: str, rows: int, stage: MakeStage, databases: Databases) -> None:
    with psycopg.connect(databases.target(TEMPLATE).conninfo or "") as template:
        fresh = defined(template)
    prepared = stage(template=databases.prepared(script(dump, rows)))
    with prepared.scene() as scene:
        with scene.connection() as connection:
            kept = data(connection)
        done = []
        while True:
            with scene.connection() as connection:
                before, step = defined(connection), next_step(connection)
            if step is None:
                break
            done.append(step.name)
            left = kill_throughout(scene, step)
            with scene.connection() as connection:
                assert next_step(connection) == left
                assert not step.whole or defined(connection) == before
            # Killed after it, or at the first statement of the next; or it was the last.
            if step.whole:
                scene.kill("committed:1", "db", "upgrade")
            else:
                scene.strike(f"script:{len(left.statements) + 1}", "db", "upgrade")
        assert [name[:4] for name in done] == [f"{n:04}" for n in range(version(dump) + 1, newest() + 1)]
        succeed(scene.run("db", "upgrade"))
        with scene.connection() as connection:
            assert defined(connection) == fresh
            found = data(connection)
            assert {name: found[name] for name in kept} == kept


def test_the_server_s_process_killed_while_it_builds_an_index(stage: MakeStage, databases: Databases) -> None:
    prepared = stage(template=databases.prepared(script("version_1", 1_000)))
    with prepared.scene() as scene, psycopg.connect(scene.conninfo) as writer:
        writer.execute("DELETE FROM cards WHERE card_id = 'card-1'")
        with (
            scene.started("db", "upgrade") as upgrade,
            psycopg.connect(scene.conninfo, autocommit=True) as watcher,
        ):
            until(lambda: watcher.execute(BUILDING).fetchone())
            value(watcher, "SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index")
            assert upgrade.result().code == 7
            assert value(watcher, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") == 1
        writer.rollback()
        writer.close()
        succeed(scene.run("db", "upgrade"))
        with scene.connection() as connection:
            assert value(connection, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") == 0
            assert next_step(connection) is None
