"""`cbx db` on a server that is the user's own. The embedded server's life is tested with the store."""

import pytest

from cardbox_cli.store.database import Database
from cardbox_cli.store.target import Target
from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx

ALL_TABLES = [
    "public.projects",
    "public.cards",
    "public.card_boxes",
    "resource.profiles",
    "cbx.box_info",
    "cbx.schema_version",
]


class TestAnEmptyDatabase:
    @pytest.fixture
    def target(self, empty_target: Target) -> Target:
        return empty_target

    def test_nothing_works_before_init(self, cbx: Cbx) -> None:
        for command in (
            ("card", "list"),
            ("box", "list"),
            ("render", "--box", "8b1f22c0"),
            ("profile", "list"),
        ):
            result = cbx(*command)
            assert (result.code, result.out) == (7, "")
            assert result.err == (
                "error: the database has no table public.cards\nhint: `cbx db init` makes the tables of cbx\n"
            )

    def test_init_shows_what_it_would_do_and_does_it_with_yes(self, cbx: Cbx) -> None:
        assert cbx("db", "init", "-o", "json").json()["missing"] == ALL_TABLES
        assert lines(cbx("db", "init", "-o", "id")) == ALL_TABLES
        assert cbx("db", "status", "-o", "json").json()["tables"] == []
        assert cbx("db", "init", "--yes", "-o", "json").json()["added"] == ALL_TABLES
        assert cbx("db", "status", "-o", "json").json()["tables"] == sorted(ALL_TABLES)
        assert succeed(cbx("card", "list", "-o", "json")) == "[]\n"

    def test_upgrade_makes_the_tables_too(self, cbx: Cbx) -> None:
        assert cbx("db", "upgrade", "-o", "json").json() == {"before": 0, "after": 1}
        assert succeed(cbx("db", "upgrade")) == "schema version 1\n"


class TestStatus:
    def test_it_says_where_and_what(self, cbx: Cbx, target: Target) -> None:
        status = cbx("db", "status", "-o", "json").json()
        assert (status["database"], status["running"]) == ("your own server", True)
        assert status["named_by"] == "CBX_DATABASE_URL"
        assert "dbname=t_" in status["address"]
        assert cbx("--database-url", target.conninfo or "", "db", "status", "-o", "json").json()[
            "named_by"
        ] == ("--database-url")
        facts = dict(line.split("  ", 1) for line in lines(cbx("db", "status")))
        assert facts["running"].strip() == "yes"
        assert facts["tables"].strip() == ", ".join(sorted(ALL_TABLES))

    def test_url_is_the_address(self, cbx: Cbx) -> None:
        [address] = lines(cbx("db", "url"))
        assert address == cbx("db", "status", "-o", "json").json()["address"]
        assert lines(cbx("db", "url", "-o", "id")) == [address]


class TestWhatIsForTheEmbeddedServer:
    @pytest.mark.parametrize("verb", ["start", "stop", "destroy"])
    def test_it_is_refused_where_another_is_named(self, verb: str, offline: Cbx) -> None:
        result = offline("db", verb)
        assert (result.code, result.out) == (2, "")
        assert result.err == (
            f"error: `cbx db {verb}` is for the embedded server, and CBX_DATABASE_URL names another database\n"
            "hint: unset CBX_DATABASE_URL, or manage that server with its own tools\n"
        )


class TestTheTextIndex:
    def test_it_is_built_once_and_mended_if_broken(self, cbx: Cbx, database: Database) -> None:
        def valid() -> list[tuple[bool]]:
            query = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('public.idx_cards_text')"
            return database.connection.execute(query).fetchall()

        assert valid() == []
        for _ in range(2):
            assert succeed(cbx("db", "index-text")) == "idx_cards_text is there\n"
            assert valid() == [(True,)]
        database.connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'public.idx_cards_text'::regclass"
        )
        succeed(cbx("db", "index-text"))
        assert valid() == [(True,)]
