"""`cbx db` on a server that is the user's own. The embedded server's life is tested with the store."""

from typing import Any

import psycopg
import psycopg.sql
import pytest

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.migrations.files import newest
from tests.cli.conftest import lines, succeed
from tests.conftest import TABLES, Cbx
from tests.next_release import AFTER, BEFORE, PARCELS, WEIGHTS, NextRelease


class TestAnEmptyDatabase:
    @pytest.fixture
    def target(self, empty_target: Target) -> Target:
        return empty_target

    def test_commands_before_init_report_the_missing_table(self, cbx: Cbx) -> None:
        for command in (
            ("card", "list"),
            ("box", "list"),
            ("render", "--box", "8b1f22c0"),
            ("profile", "list"),
        ):
            result = cbx(*command)
            assert (result.code, result.out) == (7, "")
            assert result.err == (
                "error: the database has no table public.cards\nhint: create the tables of cbx with `cbx db init --yes`\n"
            )

    def test_init_shows_its_plan_and_creates_the_tables_with_yes(self, cbx: Cbx) -> None:
        assert cbx("db", "init", "-o", "json").json()["missing"] == TABLES
        assert lines(cbx("db", "init", "-o", "id")) == TABLES
        status = cbx("db", "status", "-o", "json").json()
        assert (status["tables"], status["table_sizes"], status["project"]) == ([], [], None)
        assert said(cbx)["tables"] == "none; create them with `cbx db init --yes`"
        assert cbx("db", "init", "--yes", "-o", "json").json()["added"] == TABLES
        assert cbx("db", "status", "-o", "json").json()["tables"] == sorted(TABLES)
        assert succeed(cbx("card", "list", "-o", "json")) == "[]\n"

    def test_upgrade_creates_missing_tables(self, cbx: Cbx) -> None:
        planned = cbx("db", "upgrade", "--dry-run", "-o", "json").json()
        assert cbx("db", "status", "-o", "json").json()["tables"] == []
        assert cbx("db", "upgrade", "-o", "json").json() == {**planned, "dry_run": False}
        assert (planned["before"], planned["after"], planned["dry_run"]) == (0, newest(), True)
        assert succeed(cbx("db", "upgrade")) == f"schema version {newest()}\n"


def test_a_dry_run_of_upgrade_shows_the_sql_of_each_file(cbx: Cbx, next_release: NextRelease) -> None:
    shown = lines(cbx("db", "upgrade", "--dry-run"))
    assert shown[:3] == [
        f"-- {PARCELS}",
        "BEGIN;",
        "CREATE TABLE IF NOT EXISTS cbx.parcels (",
    ]
    assert f"-- {WEIGHTS}" in shown
    assert shown[-1].endswith(f" cbx.schema_version (version) VALUES ({AFTER}) ON CONFLICT DO NOTHING;")
    planned = cbx("db", "upgrade", "--dry-run", "-o", "json").json()
    assert (planned["before"], planned["after"], planned["dry_run"]) == (BEFORE, AFTER, True)
    assert planned["sql"].splitlines() == shown
    status = cbx("db", "status", "-o", "json").json()
    assert (status["schema_version"], status["schema_version_of_this_cbx"]) == (BEFORE, AFTER)
    assert succeed(cbx("db", "upgrade")) == f"schema version {AFTER}, was {BEFORE}\n"
    assert succeed(cbx("db", "upgrade", "--dry-run")) == f"schema version {AFTER}\n"


def test_a_schema_older_than_the_baseline_is_refused(cbx: Cbx, database: Database) -> None:
    database.connection.execute("UPDATE cbx.schema_version SET version = 16")
    for command in (
        ("db", "upgrade"),
        ("db", "upgrade", "--dry-run"),
        ("db", "init"),
        ("db", "init", "--yes"),
        ("db", "gc", "--dry-run"),
        ("card", "add", "--type", "x", "--text", "x"),
        ("worker", "run", "--exec", "true", "--drain"),
    ):
        refused = cbx(*command)
        assert (refused.code, refused.out) == (7, "")
        assert refused.err.splitlines()[-2:] == [
            "error: the database has schema version 16, but cbx upgrades only version 17 or later",
            "hint: `cbx db upgrade --help` shows the commands that move its data to a new database",
        ]
    status = cbx("db", "status", "-o", "json").json()
    assert (status["schema_version"], status["schema_version_of_this_cbx"]) == (16, newest())


def said(cbx: Cbx, *options: str) -> dict[str, str]:
    """The names and values that `cbx db status` prints above its table."""
    text = succeed(cbx("db", "status", *options))
    return {
        name: value.strip()
        for name, value in (line.split("  ", 1) for line in text.split("\n\n")[0].splitlines())
    }


def size_of_cards(status: dict[str, Any]) -> dict[str, Any]:
    """What a status says of the table of cards."""
    [found] = [size for size in status["table_sizes"] if size["table"] == "public.cards"]
    return dict(found)


def test_distribute_without_the_extension_is_refused(cbx: Cbx) -> None:
    for option in ("--dry-run", "--yes"):
        refused = cbx("db", "distribute", option)
        assert refused.code == 7
        assert refused.err.startswith(
            "error: the database has no sharding extension, and nothing was changed\nhint: on a Citus cluster: "
        )


class TestStatus:
    def test_status_shows_the_server_and_its_address(self, cbx: Cbx, target: Target) -> None:
        status = cbx("db", "status", "-o", "json").json()
        assert (status["database"], status["running"]) == ("your own server", True)
        assert status["named_by"] == "CBX_DATABASE_URL"
        assert "dbname=t_" in status["address"]
        assert cbx("--database-url", target.conninfo or "", "db", "status", "-o", "json").json()[
            "named_by"
        ] == ("--database-url")
        facts = said(cbx)
        assert facts["running"] == "yes"
        assert facts["tables"] == f"{len(TABLES)}, listed below"

    def test_status_counts_the_rows_of_the_project_and_each_table(self, cbx: Cbx) -> None:
        for card_id, *options in (("good",), ("expired", "--ttl", "0"), ("both", "--ttl", "0"), ("deleted",)):
            succeed(cbx("card", "add", "--type", "x", "--text", "x", "--id", card_id, *options))
        succeed(cbx("card", "delete", "both", "deleted", "--yes"))
        succeed(cbx("-p", "q", "card", "add", "--type", "x", "--text", "x"))
        succeed(cbx("box", "create", "good"))
        assert said(cbx)["project"] == "p: 4 cards (1 expired, 2 deleted), 1 box"
        status = cbx("db", "status", "-o", "json").json()
        assert status["project"] == {
            "project_id": "p",
            "cards": 4,
            "cards_exact": True,
            "expired": 1,
            "deleted": 2,
            "boxes": 1,
            "boxes_exact": True,
        }
        sizes = {size["table"]: size for size in status["table_sizes"]}
        assert list(sizes) == sorted(TABLES)
        assert (sizes["public.cards"]["rows"], sizes["public.cards"]["exact"]) == (5, True)
        assert status["size_bytes"] > sizes["public.cards"]["bytes"] + sizes["public.cards"]["index_bytes"]
        shown = lines(cbx("db", "status"))
        header = shown.index("")
        assert shown[header + 1].split() == ["TABLE", "ROWS", "SIZE", "INDEXES"]
        assert [row.split()[0] for row in shown[header + 2 :]] == sorted(TABLES)
        assert [row.split()[1] for row in shown if row.startswith("public.cards ")] == ["5"]
        assert cbx("-p", "none", "db", "status", "-o", "json").json()["project"]["cards"] == 0

    def test_status_shows_if_the_text_index_exists(self, cbx: Cbx) -> None:
        assert said(cbx)["text index"] == "no; build it with `cbx db index-text`"
        succeed(cbx("db", "index-text"))
        assert said(cbx)["text index"] == "yes"

    def test_the_engine_is_postgres(self, cbx: Cbx) -> None:
        status = cbx("db", "status", "-o", "json").json()
        assert (status["engine"], status["distributed"]) == ("Postgres", None)
        assert (status["role"], status["pooler"], status["keeps_plans"]) == ("primary", False, True)

    def test_large_tables_are_estimated_unless_exact_is_given(
        self, cbx: Cbx, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cardbox_cli.store.views.database_status.COUNTED_ROWS", 1000)
        database.connection.execute("ALTER TABLE cards SET (autovacuum_enabled = off)")
        database.connection.execute(
            "INSERT INTO cards (tenant_id, card_id, content, metadata)"
            " SELECT 'p', 'card-' || i, to_jsonb(repeat('x', 600)), '{}' FROM generate_series(1, 20000) AS i"
        )
        unknown = cbx("db", "status", "-o", "json").json()
        assert unknown["project"]["cards"] >= 1001
        assert size_of_cards(unknown)["rows"] is None
        assert [
            line.split()[1] for line in lines(cbx("db", "status")) if line.startswith("public.cards")
        ] == ["unknown"]
        database.connection.execute("ANALYZE cards")
        estimated = cbx("db", "status", "-o", "json").json()
        assert size_of_cards(estimated)["exact"] is False
        assert 18_000 < size_of_cards(estimated)["rows"] < 22_000
        project = estimated["project"]
        assert (project["cards_exact"], project["expired"], project["deleted"]) == (False, None, None)
        assert 18_000 < project["cards"] < 22_000
        assert (project["boxes"], project["boxes_exact"]) == (0, True)
        assert said(cbx)["project"] == f"p: ~{project['cards']} cards, 0 boxes"
        exact = cbx("db", "status", "--exact", "-o", "json").json()
        assert (exact["project"]["cards"], size_of_cards(exact)["rows"]) == (20_000, 20_000)
        assert said(cbx, "--exact")["project"] == "p: 20000 cards (0 expired, 0 deleted), 0 boxes"

    @pytest.mark.parametrize("analyzed", [False, True])
    def test_a_small_project_in_a_large_table_is_counted_exactly(
        self, analyzed: bool, cbx: Cbx, database: Database
    ) -> None:
        database.connection.execute("ALTER TABLE cards SET (autovacuum_enabled = off)")
        database.connection.execute(
            "INSERT INTO cards (tenant_id, card_id, content, metadata)"
            " SELECT 'large', 'card-' || i, to_jsonb(repeat('x', 600)), '{}' FROM generate_series(1, 20000) AS i"
        )
        if analyzed:
            database.connection.execute("ANALYZE cards")
        assert said(cbx)["project"] == "p: 0 cards, 0 boxes"
        database.connection.execute("UPDATE cards SET tenant_id = 'p' WHERE card_id LIKE 'card-1999_'")
        project = cbx("db", "status", "-o", "json").json()["project"]
        assert (project["cards"], project["cards_exact"], project["expired"]) == (10, True, None)

    def test_status_works_on_a_read_only_database(self, cbx: Cbx, target: Target) -> None:
        with psycopg.connect(target.conninfo or "", autocommit=True) as owner:
            owner.execute(
                psycopg.sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(
                    psycopg.sql.Identifier(owner.info.dbname)
                )
            )
        assert cbx("card", "add", "--type", "x", "--text", "x").code == 7
        succeed(cbx("db", "status", "--exact"))

    def test_url_prints_the_address_of_the_status(self, cbx: Cbx) -> None:
        [address] = lines(cbx("db", "url"))
        assert address == cbx("db", "status", "-o", "json").json()["address"]
        assert lines(cbx("db", "url", "-o", "id")) == [address]


class TestWhatIsForTheEmbeddedServer:
    @pytest.mark.parametrize("verb", ["start", "stop", "destroy"])
    def test_embedded_server_commands_are_refused_for_another_server(self, verb: str, offline: Cbx) -> None:
        result = offline("db", verb)
        assert (result.code, result.out) == (2, "")
        assert result.err == (
            f"error: `cbx db {verb}` works only on the embedded server, but CBX_DATABASE_URL names another database\n"
            "hint: unset CBX_DATABASE_URL, or manage that server with its own tools\n"
        )


class TestTheTextIndex:
    def test_the_text_index_is_built_once_and_rebuilt_if_invalid(self, cbx: Cbx, database: Database) -> None:
        def valid() -> list[tuple[bool]]:
            query = """SELECT indisvalid FROM pg_index
                WHERE indexrelid::regclass::text IN ('idx_cards_text', 'idx_cards_bigrams')"""
            return database.connection.execute(query).fetchall()

        assert valid() == []
        for _ in range(2):
            assert succeed(cbx("db", "index-text")) == "idx_cards_text and idx_cards_bigrams are built\n"
            assert valid() == [(True,)] * 2
        database.connection.execute("""UPDATE pg_index SET indisvalid = false
            WHERE indexrelid::regclass::text IN ('idx_cards_text', 'idx_cards_bigrams')""")
        succeed(cbx("db", "index-text"))
        assert valid() == [(True,)] * 2
