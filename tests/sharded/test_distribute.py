"""`cbx db distribute` on a cluster: finished by a second run; what is made later is distributed, too."""

import pytest
from psycopg import errors

from cardbox_cli.store.connection.database import Database
from tests.conftest import TABLES, Cbx
from tests.next_release import BEFORE, NextRelease

NOTHING_LEFT = "all tables are already distributed\n"
WORKER = ("worker", "run", "--exec", "true", "--drain")
ROW = "INSERT INTO cbx.audit (project_id, audit_id, agent_id, action, actor) VALUES ('p', 'kept', '', 'test', 'me')"


def test_a_second_run_finishes_an_interrupted_one(cbx: Cbx, database: Database) -> None:
    assert cbx("db", "distribute", "--yes").out == NOTHING_LEFT
    # As if the first run had been interrupted before this table.
    database.connection.execute("SELECT undistribute_table('cbx.audit')")
    database.connection.execute(ROW)
    assert "create_distributed_table('cbx.audit', 'project_id'" in cbx("db", "distribute", "--dry-run").out
    refused = cbx(*WORKER)
    assert (refused.code, refused.err.splitlines()[-2:]) == (
        7,
        [
            "error: some tables are distributed, but not cbx.audit",
            "hint: finish it with `cbx db distribute`",
        ],
    )
    assert cbx("db", "distribute", "--yes").out == "distributed 1 table\n"
    assert cbx("db", "distribute", "--dry-run").out == NOTHING_LEFT
    assert database.connection.execute("SELECT audit_id FROM cbx.audit").fetchall() == [("kept",)]
    with pytest.raises(errors.InsufficientPrivilege, match="append-only"):
        database.connection.execute("DELETE FROM cbx.audit WHERE project_id = 'p'")
    assert cbx(*WORKER).code == 0


def test_a_worker_refuses_reference_tables(cbx: Cbx, database: Database) -> None:
    database.connection.execute("SELECT create_reference_table('cbx.workers')")
    try:
        refused = cbx(*WORKER)
    finally:
        database.connection.execute("SELECT undistribute_table('cbx.workers')")
    assert refused.code == 7
    assert "cbx.workers must stay on the coordinator" in refused.err


def test_a_table_created_later_is_distributed(cbx: Cbx, database: Database) -> None:
    for again in (("db", "init", "--yes"), ("db", "upgrade")):
        database.connection.execute("DROP TABLE cbx.chat_steps")
        made = cbx(*again)
        assert made.code == 0, made.err
        assert database.distributed_tables()["cbx.chat_steps"]


def test_an_upgrade_reaches_every_shard(cbx: Cbx, database: Database, next_release: NextRelease) -> None:
    assert f"have schema version {BEFORE}" in cbx(*WORKER).err
    try:
        upgraded = cbx("db", "upgrade")
        assert upgraded.code == 0, upgraded.err
        for table in ("public.cards", "state.agent_inbox", "cbx.turns", "cbx.parcels"):
            here, on_shards = indexes(database, table)
            assert on_shards == {str(here)}
    finally:
        for statement in (
            "DROP TABLE IF EXISTS cbx.parcels",
            "DROP FUNCTION IF EXISTS cbx.heavier(bigint, bigint)",
            "ALTER TABLE cbx.turns DROP COLUMN IF EXISTS parcel_id",
            "ALTER TABLE public.cards DROP COLUMN IF EXISTS weight",
            "DROP INDEX IF EXISTS public.idx_cards_weight",
            "DROP INDEX IF EXISTS public.idx_cards_parcel",
            "DROP INDEX IF EXISTS state.idx_inbox_parcel",
        ):
            database.connection.execute(statement.encode())
        database.connection.execute("DELETE FROM cbx.schema_version WHERE version > %s", [BEFORE])


def test_text_indexes_are_created_on_every_shard(cbx: Cbx, database: Database) -> None:
    try:
        assert cbx("db", "index-text").out == "idx_cards_text and idx_cards_bigrams are there\n"
        for text in ("支付超时了", "the payment timed out"):
            assert cbx("card", "add", "--type", "task.instruction", "--text", text).code == 0
        for piece in ("付超", "payment"):
            assert len(cbx("card", "search", piece, "-o", "json").json()) == 1
        for table in ("public.cards", "state.agent_inbox"):
            here, on_shards = indexes(database, table)
            assert on_shards == {str(here)}
    finally:
        for index in ("idx_cards_text", "idx_cards_bigrams"):
            database.connection.execute(f"DROP INDEX IF EXISTS public.{index}".encode())


def indexes(database: Database, table: str) -> tuple[int, set[str]]:
    """How many indexes a table has on the coordinator, and how many on its shards."""
    counted = "SELECT count(*) FROM pg_index WHERE indrelid = '%s'::regclass AND indisvalid"
    execute = database.connection.execute
    [(here,)] = execute((counted % table).encode()).fetchall()
    shards = execute("SELECT DISTINCT result FROM run_command_on_shards(%s, %s)", [table, counted]).fetchall()
    return here, {result for (result,) in shards}


def test_the_status_reports_nodes_and_distributed_tables(cbx: Cbx) -> None:
    status = cbx("db", "status", "-o", "json").json()
    assert status["engine"].startswith("Citus ")
    assert status["distributed"]["tables"] == len(TABLES) - 2
    assert status["distributed"]["nodes"] > 1
    assert not status["keeps_plans"]
