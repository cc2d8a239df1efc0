"""What the stores of one project share: queries that name the project, and lists read page by page."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from cardbox_cli.errors import AmbiguousId, NotFound
from cardbox_cli.model.ids import MIN_SHORT, SHORT
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.queries import all_decoded, decoded_or_none
from cardbox_cli.text import did_you_mean, unbounded

# A point in time, or how long ago it was on the database's clock.
Moment = datetime | timedelta

PAGE = 200
COUNTED = 10_000
"""How far a count looks behind the end of a list."""
NAMES = 1000
"""How many names are looked at for one that is near."""


class Mark(msgspec.Struct, frozen=True):
    """A place in a list that is sorted by time: that of the item of this id, be it there still or not."""

    at: datetime
    id: str


class Names(NamedTuple):
    """Names that people choose: the query that gives those of about the length of one, and its table."""

    query: str
    table: str


class Paged(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a list: `behind` is where it goes on that was read up to there."""

    behind: Mark | None = None


class Dated(Paged, frozen=True, kw_only=True):
    """What limits a list by time: from `since` on, and before `until`; None means ever."""

    since: Moment | None = None
    until: Moment | None = None


_Item = TypeVar("_Item")
_Filter = TypeVar("_Filter", bound=Dated)


class Further(msgspec.Struct, frozen=True):
    """How many items a list would hold behind a place; at least so many where not all were looked at."""

    count: int
    all_seen: bool

    @classmethod
    def counted(cls, matching: int, looked_at: int, *, limit: int = COUNTED) -> "Further":
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

    def _run(self, name: str, /, **parameters: Any) -> int:
        return self.database.run(name, project_id=self.project_id, **parameters)

    def _column(self, name: str, /, **parameters: Any) -> list[Any]:
        return self.database.column(name, project_id=self.project_id, **parameters)

    def _one(self, kind: type[_Item], name: str, /, **parameters: Any) -> _Item | None:
        """The value that the query `name` answers as JSON; None for none."""
        return decoded_or_none(kind, self._value(name, **parameters))

    def _all(self, kind: type[_Item], name: str, /, **parameters: Any) -> list[_Item]:
        """The values that the query `name` answers as JSON."""
        return all_decoded(kind, self._rows(name, **parameters))

    def _dated(self, where: _Filter) -> _Filter:
        """`where` with instants on the database's clock for ages."""
        since, until = (
            self.database.now() - moment if isinstance(moment, timedelta) else moment
            for moment in (where.since, where.until)
        )
        return msgspec.structs.replace(where, since=since, until=until)

    def _further(self, name: str, /, **place: Any) -> Further:
        """What the query `name` counts behind a place; nothing is behind what has no time."""
        if place.get("after_time", ...) is None:
            return Further(0, False)
        found = self._value(name, **{**place, "limit": COUNTED + 1})
        return Further.counted(found, found)

    def _require(self, *tables: str) -> None:
        for table in tables:
            self.database.require(table)

    def _found(
        self, item: _Item | None, what: str, name: str, hint: str, *, names: Names | None = None
    ) -> _Item:
        """`item`, or NotFound for none, as `_absent` makes it."""
        if item is None:
            raise self._absent(what, name, hint, names=names)
        return item

    def _absent(self, what: str, name: str, hint: str, *, names: Names | None = None) -> NotFound:
        """That nothing is called so. Where people choose the names, and our role may read them, one that is
        near is what may have been meant."""
        may_read = names is not None and names.table in self.database.tables
        known = self._column(names.query, name=name, limit=NAMES) if names and may_read else []
        return NotFound(
            f"no {what} {name!r} in project {self.project_id!r}{did_you_mean(name, known)}", hint=hint
        )


def place(
    where: msgspec.Struct, after: object, limit: int, *, key: str, time: str = "created_at"
) -> dict[str, Any]:
    """The parameters of a list's next page: what `where` allows, behind the item `after` if there is one."""
    mark = _mark(where, after, key, time)
    at = None if mark is None else mark.at
    last = {"after_time": at and (unbounded(at) or at), "after_id": None if mark is None else mark.id}
    return {**msgspec.structs.asdict(where), **last, "limit": limit}


def _mark(where: msgspec.Struct, after: object, key: str, time: str) -> Mark | None:
    if after is not None:
        return Mark(getattr(after, time), getattr(after, key))
    return where.behind if isinstance(where, Paged) else None


def paged(
    read: Callable[[_Item | None, int], list[_Item]], *, limit: int | None, page: int | None = None
) -> Iterator[_Item]:
    """Up to `limit` items of `read(after, size)`, which answers at most `size` items behind `after`."""
    page = page or PAGE
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


# From a piece of an id to the one id that is meant.


def like_escape(text: str) -> str:
    """`text` as a LIKE pattern that matches just it."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def shown_beginning(database: "Database", wanted: str, index: str) -> str | None:
    """The LIKE pattern of ids in short that begin with `wanted`; None where none can.

    All of them is the end of an id. Where the `index` is not there all ids are looked at, which is announced.
    """
    if not MIN_SHORT <= len(wanted) < SHORT:
        return None
    if not database.value("index_exists", index=index):
        database.target.announce(f"looking through all ids; all {SHORT} shown characters are found faster")
    return f"{like_escape(wanted)}%"


def the_one(noun: str, wanted: str, candidates: Sequence[str], project_id: str) -> str:
    """The only candidate. Raises NotFound for none and AmbiguousId for several.

    The first word of `noun` is the command that lists such things.
    """
    if len(candidates) == 1 and (len(wanted) >= MIN_SHORT or candidates[0] == wanted):
        return candidates[0]
    if not candidates or len(wanted) < MIN_SHORT:
        short = len(wanted) < MIN_SHORT
        raise NotFound(
            f"no {noun} {wanted!r} in project {project_id!r}",
            hint=f"type at least {MIN_SHORT} characters of the id"
            if short
            else f"`cbx {noun.split()[0]} list` shows the newest",
        )
    shown = sorted(candidates)[:5]
    more = " and more" if len(candidates) > len(shown) else ""
    raise AmbiguousId(
        f"{wanted!r} fits several: {', '.join(shown)}{more}",
        hint="type more characters of the id, from its beginning or its end, or all 8 that are shown",
        details={"candidates": shown},
    )
