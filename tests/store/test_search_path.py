"""Names without a schema are Postgres' own: nothing that somebody made in `public` is taken for one of these."""

from collections.abc import Iterator

import psycopg
import pytest

from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.conftest import Cbx

# Each fits its arguments better than Postgres' own, and so would be preferred.
TRAPS = """
CREATE TABLE public.trapped (who text);
GRANT INSERT ON public.trapped TO PUBLIC;
CREATE FUNCTION public.trap(name, text) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.trapped VALUES (session_user); RETURN $1::text OPERATOR(pg_catalog.||) $2; END $$;
CREATE OPERATOR public.|| (LEFTARG = name, RIGHTARG = text, FUNCTION = public.trap);
CREATE FUNCTION public.has_schema_privilege(oid, unknown_kind text, ignored text DEFAULT '') RETURNS boolean
    LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.trapped VALUES (session_user); RETURN true; END $$;
CREATE FUNCTION public.trap(uuid, text) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.trapped VALUES (session_user); RETURN $1::text OPERATOR(pg_catalog.=) $2; END $$;
CREATE OPERATOR public.= (LEFTARG = uuid, RIGHTARG = text, FUNCTION = public.trap);
CREATE FUNCTION public.lower(varchar) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.trapped VALUES (session_user); RETURN 'trapped'; END $$;
"""


@pytest.fixture
def trapped(target: Target) -> Iterator[psycopg.Connection[tuple[int]]]:
    """Another user's connection, who may create in `public`."""
    with psycopg.connect(target.conninfo or "", autocommit=True) as connection:
        connection.execute(TRAPS)
        yield connection


def caught(connection: psycopg.Connection[tuple[int]]) -> int:
    row = connection.execute("SELECT count(*) FROM public.trapped").fetchone()
    assert row is not None
    return row[0]


def test_foreign_functions_in_public_are_not_called(
    trapped: psycopg.Connection[tuple[int]], cbx: Cbx
) -> None:
    trapped.execute("SELECT nspname || '.'::text FROM pg_namespace")
    before = caught(trapped)
    assert before > 0, "whoever has `public` in the path is caught"
    for words in (
        ["db", "status"],
        ["card", "list"],
        ["project", "show"],
        ["why", "--all"],
        ["agent", "list"],
    ):
        assert cbx(*words).code in (0, 3), words
    assert caught(trapped) == before


def test_a_trigger_without_schemas_is_reported_with_a_fix(target: Target, cbx: Cbx) -> None:
    with psycopg.connect(target.conninfo or "", autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE public.seen (id text);"
            " CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN INSERT INTO seen VALUES (new.card_id); RETURN new; END $$;"
            " CREATE TRIGGER note AFTER INSERT ON public.cards FOR EACH ROW EXECUTE FUNCTION public.note()"
        )
        add = ("card", "add", "--type", "agent.thought", "--text", "hi")
        failed = cbx(*add)
        assert (failed.code, failed.err.splitlines()[0]) == (
            7,
            'error: the function public.note() of another program failed: relation "seen" does not exist',
        )
        assert "SET search_path = public" in failed.err
        connection.execute("ALTER FUNCTION public.note() SET search_path = public")
        assert cbx(*add).code == 0
        assert connection.execute("SELECT count(*) FROM public.seen").fetchone() == (1,)


def test_setting_the_search_path_needs_no_extra_statement(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    monkeypatch.setattr("cardbox_cli.store.connection.database.fault_point", ran.append)
    with Database.open_target(target) as database:
        assert database.connection.execute("SHOW search_path").fetchone() == ("pg_catalog, pg_temp",)
    assert ran == ["existing_tables", "schema_version"]


def test_a_callers_connection_keeps_its_search_path(target: Target) -> None:
    with psycopg.connect(target.conninfo or "", autocommit=True) as connection:
        before = connection.execute("SHOW search_path").fetchone()
        assert "public.cards" in Database.adopt(connection).tables
        assert connection.execute("SHOW search_path").fetchone() == before


def test_a_connection_of_a_pooler_keeps_its_search_path(target: Target) -> None:
    with Database.connect(target) as database:
        before = database.connection.execute("SHOW search_path").fetchone()
        database.column("existing_tables", names=[], process=database.connection.info.backend_pid + 1)
        assert database.connection.execute("SHOW search_path").fetchone() == before
