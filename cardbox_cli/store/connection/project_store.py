"""What the stores of one project share: queries that name the project, and lists read page by page."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from cardbox_cli.store.connection.database import Database

_Item = TypeVar("_Item")

# A point in time, or how long ago it was on the database's clock.
Moment = datetime | timedelta


class Further(msgspec.Struct, frozen=True):
    """How many items a list would hold behind a place; at least so many where not all were looked at."""

    count: int
    all_seen: bool

    @classmethod
    def counted(cls, matching: int, looked_at: int, *, limit: int) -> "Further":
        """What is known after a look at up to `limit` + 1 rows."""
        return cls(min(matching, limit), looked_at <= limit)


class ProjectStore:
    """A view of one project's rows. `project_id` is the tenant; nothing of another project is ever seen."""

    def __init__(self, database: Database, project_id: str) -> None:
        self.database = database
        self.project_id = project_id

    def _rows(self, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        return self.database.rows(name, project_id=self.project_id, **parameters)

    def _stream(self, name: str, /, **parameters: Any) -> Iterator[tuple[Any, ...]]:
        return self.database.stream(name, project_id=self.project_id, **parameters)

    def _row(self, name: str, /, **parameters: Any) -> tuple[Any, ...] | None:
        return self.database.row(name, project_id=self.project_id, **parameters)

    def _value(self, name: str, /, **parameters: Any) -> Any:
        return self.database.value(name, project_id=self.project_id, **parameters)

    def _instant(self, moment: Moment | None) -> datetime | None:
        return self.database.now() - moment if isinstance(moment, timedelta) else moment

    def _run(self, name: str, /, **parameters: Any) -> int:
        return self.database.run(name, project_id=self.project_id, **parameters)


def paged(
    read: Callable[[_Item | None, int], list[_Item]], *, page: int, limit: int | None
) -> Iterator[_Item]:
    """Up to `limit` items of `read(after, size)`, which answers at most `size` items behind `after`."""
    after: _Item | None = None
    left = limit
    while left is None or left > 0:
        size = page if left is None else min(page, left)
        items = read(after, size)
        yield from items
        if len(items) < size:
            return
        after = items[-1]
        left = None if left is None else left - len(items)
