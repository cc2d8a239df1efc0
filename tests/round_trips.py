"""How often a connection asks its server and waits for the answer: what a use case costs over a network.

BEGIN, COMMIT and savepoints count, as everything does that the driver sends and awaits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cardbox_cli.store.connection.database import Database


class RoundTrips:
    """How many there were."""

    count = 0


@contextmanager
def counted(database: Database) -> Iterator[RoundTrips]:
    """Counts those of this connection, which keeps no plans."""
    trips, connection = RoundTrips(), database.connection
    assert connection.prepare_threshold is None
    wait = connection.wait

    def counting(*arguments: Any, **options: Any) -> Any:
        trips.count += 1
        return wait(*arguments, **options)

    connection.wait = counting  # type: ignore[method-assign]
    try:
        yield trips
    finally:
        del connection.wait
