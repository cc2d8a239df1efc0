"""Every named query keeps to the rules of `sql_rules.py`, but for the exceptions that are listed; so do the tables."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cardbox_cli import store
from cardbox_cli.store.connection import queries
from cardbox_cli.store.connection.tables import FOREIGN_BATCHES
from tests.databases import Databases
from tests.store.parse_trees import Server
from tests.store.sql_rules import RULES, Schema, broken_rules

FILES = sorted((Path(str(store.__file__)).parent / "sql").rglob("*.sql"))
NAMES = [
    name for file in FILES for name in re.findall(r"^-- name: (\w+)$", file.read_text(encoding="utf-8"), re.M)
]
HERE = Path(__file__).parent
DEPLOYMENT_SQL = (HERE.parent / "foreign" / "deployment.sql").read_text(encoding="utf-8")
EXCEPTIONS = tomllib.loads((HERE / "sql_rule_exceptions.toml").read_text(encoding="utf-8"))
CASES = re.findall(
    r"^-- broken: (\S+)\n(.+?)\n-- kept\n(.+?)\n$",
    (HERE / "sql_rule_cases.sql").read_text(encoding="utf-8") + "\n",
    re.MULTILINE | re.DOTALL,
)

# How cbx's own tables name the project. On one server ids are unique across projects, too: card-box clients upsert
# on them. `cbx db distribute` drops that index.
PROJECT_COLUMNS = ("tenant_id", "project_id")
UNIQUE_ACROSS_PROJECTS = {"uniq_cards_card_id"}


@pytest.fixture(scope="module")
def connection(embedded_databases: Databases) -> Iterator[psycopg.Connection]:
    name = embedded_databases.make()
    with psycopg.connect(embedded_databases.target(name).conninfo or "") as opened:
        # The tables of another system that queries read where they are there.
        for table in FOREIGN_BATCHES:
            opened.execute(_defined(table))
        yield opened
    embedded_databases.drop(name)


def _defined(table: str) -> str:
    """The statement by which the other system makes a table."""
    found = re.search(rf"CREATE TABLE {re.escape(table)} .*?;", DEPLOYMENT_SQL, re.DOTALL)
    assert found
    return found[0]


@pytest.fixture(scope="module")
def temporary() -> dict[str, str]:
    """The statements that make temporary tables, by the table."""
    texts = (queries.query(name) for name in NAMES)
    made = ((re.search(r"CREATE TEMP TABLE IF NOT EXISTS (\w+)", text), text) for text in texts)
    return {found[1]: text for found, text in made if found}


@pytest.fixture(scope="module")
def server(connection: psycopg.Connection, temporary: dict[str, str]) -> Server:
    return Server(connection, list(temporary.values()))


@pytest.fixture(scope="module")
def schema(connection: psycopg.Connection, temporary: dict[str, str]) -> Schema:
    columns = connection.execute(
        "SELECT table_schema || '.' || table_name, column_name FROM information_schema.columns"
        " WHERE column_name = ANY(%s) AND is_nullable = 'NO' AND table_schema NOT LIKE 'pg\\_%%'",
        [list(PROJECT_COLUMNS)],
    ).fetchall()
    tables = connection.execute("SELECT schemaname || '.' || tablename FROM pg_tables").fetchall()
    catalog = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace"
    )
    return Schema(
        projects=dict(columns),
        tables=frozenset(
            name for (name,) in tables if not name.startswith(("pg_catalog.", "information_schema."))
        ),
        temporary=frozenset(temporary),
        catalog=frozenset(name for (name,) in catalog),
    )


@pytest.fixture(scope="module")
def found(schema: Schema, server: Server) -> dict[str, dict[str, set[str]]]:
    """What breaks each rule in each query."""
    broken: dict[str, dict[str, set[str]]] = {rule: {} for rule in RULES}
    for name in NAMES:
        for rule, what in broken_rules(queries.query(name), schema, server):
            broken[rule].setdefault(name, set()).add(what)
    return broken


def test_every_exception_names_a_rule_and_a_reason() -> None:
    assert EXCEPTIONS.keys() <= RULES.keys()
    for queries_and_reasons in EXCEPTIONS.values():
        assert sorted(queries_and_reasons) == list(queries_and_reasons)
        assert all(reason.strip() for reason in queries_and_reasons.values())


@pytest.mark.parametrize("rule", RULES)
def test_all_queries_follow_the_rule(rule: str, found: dict[str, dict[str, set[str]]]) -> None:
    excepted = set(EXCEPTIONS.get(rule, {}))
    new = [f"{name}: {', '.join(sorted(what))}" for name, what in found[rule].items() if name not in excepted]
    mended = excepted - found[rule].keys()
    assert not new, "\n".join([f"{RULES[rule]}; sql_rules.py says more. It is broken by", *new])
    assert not mended, f"these keep to {rule!r} now: take them off the list in sql_rule_exceptions.toml"


@pytest.mark.parametrize("alone", [True, False], ids=["one server", "shards"])
def test_query_parameters_are_numbered_without_gaps(alone: bool) -> None:
    """However long a query is: psycopg remembers those of texts of up to 4,096 characters only."""
    for name in NAMES:
        times = queries.clocks(name) if alone else frozenset()
        text, parameters = queries.numbered_query(name, times)
        assert "%(" not in text
        assert {int(number) for number in re.findall(r"\$(\d+)", text)} == set(range(1, len(parameters) + 1))
        assert len(set(parameters)) == len(parameters)


def test_a_doubled_percent_sign_becomes_a_single_one() -> None:
    assert "%%" in queries.query("list_boxes_by_kind")
    assert "%%" not in queries.numbered_query("list_boxes_by_kind").text


def test_every_unique_key_begins_with_the_project(connection: psycopg.Connection, schema: Schema) -> None:
    keys = connection.execute(
        "SELECT i.indrelid::regclass::text, c.relname, a.attname"
        " FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
        " LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
        " WHERE i.indisunique AND c.relnamespace::regnamespace::text NOT IN ('pg_catalog', 'pg_toast')"
    ).fetchall()
    ours = schema.projects.keys() - set(FOREIGN_BATCHES)
    of_projects = [(index, column) for table, index, column in keys if _whole(table) in ours]
    across = {index for index, column in of_projects if column not in PROJECT_COLUMNS}
    assert len(of_projects) > len(schema.projects) > 10
    assert across == UNIQUE_ACROSS_PROJECTS


def _whole(table: str) -> str:
    return table if "." in table else f"public.{table}"


def test_every_rule_has_a_test_case() -> None:
    assert {rule for rule, _, _ in CASES} == RULES.keys()


@pytest.mark.parametrize(("rule", "broken", "kept"), CASES, ids=[rule for rule, _, _ in CASES])
def test_a_rule_finds_only_what_breaks_it(
    rule: str, broken: str, kept: str, schema: Schema, server: Server
) -> None:
    found = {name for name, _ in broken_rules(broken, schema, server)}
    assert rule in found
    assert found <= {rule, "clock"}
    assert broken_rules(kept, schema, server) == set()
