"""Listening for wakeups where the server comes and goes, is a replica, or stands behind a pooler; and what a
connection through a pooler may be told."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from cardbox_cli.errors import DatabaseUnavailable, UsageError
from cardbox_cli.store.cards import index_text
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.notifications import Listener, notify, payload_filter
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.migrations.upgrade import add_missing_tables, plan_upgrade, upgrade
from tests.packages import program
from tests.pooled.pooler import Pooler
from tests.store.embedded.helpers import give_to_owner_of
from tests.store.test_kept_plans import plans_kept

PATIENCE = 60

Listen = Callable[[Target], Listener]


@pytest.fixture
def server(made_home: Path) -> EmbeddedServer:
    """A running server of this test's own."""
    server = EmbeddedServer(made_home)
    server.start()
    return server


@pytest.fixture
def announced() -> list[str]:
    return []


@pytest.fixture
def listen(announced: list[str]) -> Iterator[Listen]:
    """Make a listener for the target w of project p."""
    made = []

    def make(target: Target) -> Listener:
        made.append(Listener(target, payload_filter("p", ("w",)), announced.append))
        return made[-1]

    yield make
    for listener in made:
        listener.close()


@contextmanager
def pooled(server: EmbeddedServer, folder: Path) -> Iterator[Target]:
    """The server through PgBouncer in transaction mode."""
    pooler = Pooler(server, folder)
    pooler.start()
    try:
        yield Target(pooler.address("cbx"), "the test", server.home)
    finally:
        pooler.stop()


def test_a_listener_reconnects_after_a_stop_without_starting_the_server(
    server: EmbeddedServer, listen: Listen, announced: list[str]
) -> None:
    target = Target(None, "embedded", server.home)
    listener = listen(target)
    assert listener.wait(PATIENCE)
    server.stop()
    assert listener.wait(PATIENCE)
    assert not listener.wait(0.3)
    assert not server.status().running
    server.start()
    assert listener.wait(PATIENCE)
    with Database.connect(target) as database:
        notify(database, ("p", "w"))
    assert listener.wait(PATIENCE)
    assert len(announced) == 2


def test_a_connection_pooler_is_announced(
    server: EmbeddedServer, listen: Listen, announced: list[str]
) -> None:
    program("pgbouncer")
    with pooled(server, server.home.parent) as target:
        assert listen(target).wait(PATIENCE)
    assert announced == [
        "warning: Postgres is behind a connection pooler, which delivers no wakeups in transaction "
        "mode; workers poll. Set CBX_LISTEN_URL to a direct connection"
    ]


def test_behind_a_pooler_the_idle_limit_applies_to_one_transaction(server: EmbeddedServer) -> None:
    program("pgbouncer")
    show = b"SHOW idle_in_transaction_session_timeout"
    with pooled(server, server.home.parent) as target, Database.connect(target) as database:
        assert not database.direct
        database.limit_pauses(timedelta(seconds=1.5))
        with database.transaction():
            assert database.connection.execute(show).fetchone() == ("1500ms",)
        assert database.connection.execute(show).fetchone() == ("0",)


def test_behind_a_pooler_no_statements_are_prepared(server: EmbeddedServer) -> None:
    program("pgbouncer")
    with Database.connect(Target(None, "embedded", server.home)) as database:
        add_missing_tables(database)
    with pooled(server, server.home.parent) as target, Database.open(target.conninfo) as database:
        assert plans_kept(database) == 0


def test_behind_a_pooler_an_upgrade_is_refused_but_an_index_is_built(server: EmbeddedServer) -> None:
    program("pgbouncer")
    with pooled(server, server.home.parent) as target, Database.connect(target) as database:
        add_missing_tables(database)
        with pytest.raises(
            UsageError, match="this command does not work through a connection pooler"
        ) as refused:
            upgrade(database)
        assert refused.value.hint == "pass the server's own address as --database-url"
        assert plan_upgrade(database).steps == []
        index_text(database)
        assert database.value("index_exists", index="public.idx_cards_text")


def test_a_replica_is_announced(server: EmbeddedServer, listen: Listen, announced: list[str]) -> None:
    target = Target(None, "embedded", server.home)
    server.stop()
    data = server.status().data
    (data / "standby.signal").touch()
    give_to_owner_of(data, data / "standby.signal")
    server.start()
    assert not listen(target).wait(0.3)
    assert announced == [
        "warning: no wakeups from Postgres: the database is read-only (a replica?); workers poll"
    ]
    with Database.connect(target) as database, pytest.raises(DatabaseUnavailable):
        notify(database, ("p", "w"))
