"""A transaction that lies idle for too long, because its process was stopped, does not keep others waiting."""

from datetime import timedelta

import pytest

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target


def test_an_idle_transaction_loses_its_locks(database: Database, target: Target) -> None:
    database.connection.execute("CREATE TABLE public.held AS SELECT 1 AS number")
    lock = b"SELECT number FROM public.held FOR UPDATE"
    database.limit_pauses(timedelta(milliseconds=200))
    with Database.open_target(target) as other:

        def pause() -> None:
            with database.transaction():
                database.connection.execute(lock)
                # Waits until the lock is given up, as long as it takes: for ever, if nobody limits it.
                other.connection.execute("SET lock_timeout = '60s'")
                assert other.connection.execute(lock).fetchall() == [(1,)]
                database.now()

        with pytest.raises(DatabaseUnavailable, match="the connection to the database was lost"):
            pause()
        assert other.connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("0",)


def test_the_idle_limit_applies_only_to_its_connection(database: Database, target: Target) -> None:
    database.limit_pauses(timedelta(seconds=1.5))
    show = b"SHOW idle_in_transaction_session_timeout"
    with database.transaction():
        assert database.connection.execute(show).fetchone() == ("1500ms",)
    with database.snapshot():
        assert database.connection.execute(show).fetchone() == ("1500ms",)
    with Database.open_target(target) as other:
        assert other.connection.execute(show).fetchone() == ("0",)
