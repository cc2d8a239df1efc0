"""What a worker says of a database that goes and comes."""

from datetime import timedelta

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.connections import WorkerConnection, WorkerConnectionPool
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target

_GONE = DatabaseUnavailable("the database went away")


def test_a_lost_database_is_reported_once_and_its_return_once(target: Target) -> None:
    said: list[str] = []
    connections = WorkerConnectionPool(
        lambda: Database.open_target(target),
        lambda database, project_id: Runtime(database, project_id),
        longest_pause=timedelta(seconds=10),
        announce=said.append,
    )
    with connections.open_own(lambda: False) as one, connections.open_own(lambda: True) as other:
        for connection in (one, other, one):
            connections.note_down(connection, _GONE)
        works(one)
        assert said == ["warning: the database went away; trying again until it is back"]
        # It waits no more, and does not know.
        connections.forget(other)
        works(one)
        works(one)
    assert said[1:] == ["the database is back"]


def works(connection: WorkerConnection) -> None:
    assert connection.retry(lambda database: database.now()) is not None
