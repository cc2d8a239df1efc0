"""Base class of the stores of one project: queries with the project's id, and lists read page by page."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from cardbox_cli.errors import AmbiguousId, NotFound
from cardbox_cli.model.ids import MIN_SHORT, SHORT
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.queries import decode_optional_row, decode_row, decode_rows
from cardbox_cli.text.error_messages import ambiguous_message, did_you_mean
from cardbox_cli.text.times import format_infinity

# A point in time, or an age that the database's clock turns into one.
Moment = datetime | timedelta

# No box has this id. Queries get it instead of an id that is not a UUID.
NO_BOX = "00000000-0000-0000-0000-000000000000"

PAGE_SIZE = 200
MAX_COUNTED = 10_000
"""Maximum of a count of further items."""
MAX_NAMES_COMPARED = 1000
"""Maximum number of names that a suggestion is chosen from."""


class ListPosition(msgspec.Struct, frozen=True):
    """A position in a list that is sorted by time. The item with this id may have been deleted."""

    at: datetime
    id: str


class NameQuery(NamedTuple):
    """A query for names of similar length, for "did you mean", and the table that it reads."""

    query: str
    table: str


class PageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of a list that continues after the item `behind`."""

    behind: ListPosition | None = None


class DateFilter(PageFilter, frozen=True, kw_only=True):
    """Filter of a list by time, from `since` (included) to `until` (excluded). None is unlimited."""

    since: Moment | None = None
    until: Moment | None = None


_Item = TypeVar("_Item")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class FurtherCount(msgspec.Struct, frozen=True):
    """Number of items after a position of a list, up to a limit. If not `all_seen`, there may be more."""

    count: int
    all_seen: bool

    @classmethod
    def cap(cls, matching: int, examined: int, *, limit: int = MAX_COUNTED) -> "FurtherCount":
        """Return `matching`, capped at `limit`, for a query that examines up to `limit` + 1 rows."""
        return cls(min(matching, limit), examined <= limit)


class ProjectStore:
    """A view of one project's rows. `project_id` is the tenant: rows of other projects are never visible."""

    def __init__(self, database: Database, project_id: str) -> None:
        self.database = database
        self.project_id = project_id

    def _rows(self, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        return self.database.rows(name, **{**parameters, "project_id": self.project_id})

    def _stream(self, name: str, /, **parameters: Any) -> Iterator[tuple[Any, ...]]:
        return self.database.stream(name, project_id=self.project_id, **parameters)

    def _row(self, name: str, /, **parameters: Any) -> tuple[Any, ...] | None:
        return self.database.row(name, **{**parameters, "project_id": self.project_id})

    def _value(self, name: str, /, **parameters: Any) -> Any:
        return self.database.value(name, **{**parameters, "project_id": self.project_id})

    def _run(self, name: str, /, **parameters: Any) -> int:
        return self.database.run(name, project_id=self.project_id, **parameters)

    def _column(self, name: str, /, **parameters: Any) -> list[Any]:
        return self.database.column(name, project_id=self.project_id, **parameters)

    def _one(self, kind: type[_Item], name: str, /, **parameters: Any) -> _Item | None:
        return decode_optional_row(kind, self._value(name, **parameters))

    def _all(self, kind: type[_Item], name: str, /, **parameters: Any) -> list[_Item]:
        return decode_rows(kind, self._rows(name, **parameters))

    def _facts(self, kind: type[_Struct], name: str, /, **parameters: Any) -> _Struct | None:
        """Return the JSON object that a query finds, or None. Its field `now` is the time of the query."""
        row = self._row(name, **parameters)
        return None if row is None else msgspec.structs.replace(decode_row(kind, row[1]), now=row[0])

    def _list(
        self, kind: type[_Item], name: str, where: msgspec.Struct, limit: int | None, **order: str
    ) -> Iterator[_Item]:
        """Yield up to `limit` values that the query `name` lists, reading page by page."""
        where = self._resolve_dates(where)
        return read_pages(
            lambda after, size: self._all(kind, name, **page_parameters(where, after, size, **order)),
            limit=limit,
        )

    def _resolve_dates(self, where: _Struct) -> _Struct:
        """Return `where` with ages replaced by instants on the database's clock."""
        if not isinstance(where, DateFilter):
            return where
        moments = {"since": where.since, "until": where.until}
        ages = {name: age for name, age in moments.items() if isinstance(age, timedelta)}
        return msgspec.structs.replace(where, **{name: self.database.now() - ages[name] for name in ages})

    def _further(self, name: str, where: msgspec.Struct, last: object, **order: str) -> FurtherCount:
        """Count the items after `last` with the query `name`. The count is 0 if `last` has no time."""
        place = page_parameters(self._resolve_dates(where), last, MAX_COUNTED + 1, **order)
        if place["after_time"] is None:
            return FurtherCount(0, False)
        count = self._value(name, **place)
        return FurtherCount.cap(count, count)

    def _search_ids(self, part: str, *queries: str, index: str | None = None) -> list[str]:
        """Return the ids that begin or end with `part`, from the first query that finds any.

        With the `index` of short ids, also finds ids whose short id begins with `part`.
        """
        if len(part) < MIN_SHORT:
            return []
        patterns = {"beginning": f"{like_escape(part)}%", "reversed_end": f"{like_escape(part[::-1])}%"}
        shown = None if index is None else short_id_pattern(self.database, part, index)
        results = (self._column(query, **patterns, shown=shown) for query in queries)
        return next(filter(None, results), [])

    def _require(self, *tables: str) -> None:
        for table in tables:
            self.database.require(table)

    def _require_item(
        self, item: _Item | None, what: str, name: str, hint: str, *, names: NameQuery | None = None
    ) -> _Item:
        """Return `item`, or raise NotFound if it is None."""
        if item is None:
            raise self._not_found(what, name, hint, names=names)
        return item

    def _not_found(self, what: str, name: str, hint: str, *, names: NameQuery | None = None) -> NotFound:
        """Return NotFound for an unknown name. Suggests a similar name if our role may read `names`."""
        candidates: list[str] = []
        if names is not None and names.table in self.database.tables:
            candidates = self._column(names.query, name=name, limit=MAX_NAMES_COMPARED)
        suggestion = did_you_mean(name, candidates)
        return NotFound(f"no {what} {name!r} in project {self.project_id!r}{suggestion}", hint=hint)


def page_parameters(
    where: msgspec.Struct, after: object, limit: int, *, key: str, time: str = "created_at"
) -> dict[str, Any]:
    """Return the parameters of a list's next page: its filter, and the position of the item `after`."""
    behind = where.behind if isinstance(where, PageFilter) else None
    last = behind if after is None else ListPosition(getattr(after, time), getattr(after, key))
    at = last and last.at
    place = {"after_time": at and (format_infinity(at) or at), "after_id": last and last.id}
    return {**msgspec.structs.asdict(where), **place, "limit": limit}


def read_pages(
    read: Callable[[_Item | None, int], list[_Item]], *, limit: int | None, page: int = PAGE_SIZE
) -> Iterator[_Item]:
    """Yield up to `limit` items of `read(after, size)`, which returns at most `size` items after `after`."""
    after: _Item | None = None
    while limit is None or limit > 0:
        size = page if limit is None else min(page, limit)
        items = read(after, size)
        yield from items
        if len(items) < size:
            return
        after = items[-1]
        limit = None if limit is None else limit - len(items)


# --- complete a part of an id


def like_escape(text: str) -> str:
    """Return a LIKE pattern that matches only `text`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def short_id_pattern(database: "Database", wanted: str, index: str) -> str | None:
    """Return the LIKE pattern of short ids that begin with `wanted`, or None if its length excludes this.

    A complete short id needs no pattern, because it is the end of an id. Without the `index`, announces that
    the search reads all ids.
    """
    if not MIN_SHORT <= len(wanted) < SHORT:
        return None
    if not database.value("index_exists", index=index):
        database.target.announce(f"searching all ids; type all {SHORT} shown characters for a faster search")
    return f"{like_escape(wanted)}%"


def require_single(noun: str, wanted: str, candidates: Sequence[str], project_id: str) -> str:
    """Return the only candidate. Raises NotFound if there is none, AmbiguousId if there are several.

    The hint suggests the list command that the first word of `noun` names.
    """
    if len(candidates) == 1 and (len(wanted) >= MIN_SHORT or candidates[0] == wanted):
        return candidates[0]
    is_short = len(wanted) < MIN_SHORT
    if not candidates or is_short:
        typing = f"type at least {MIN_SHORT} characters of the id"
        hint = typing if is_short else f"`cbx {noun.split()[0]} list` shows the newest"
        raise NotFound(f"no {noun} {wanted!r} in project {project_id!r}", hint=hint)
    shown = sorted(candidates)[:5]
    raise AmbiguousId(
        ambiguous_message(wanted, noun, shown, more=len(candidates) > len(shown)),
        hint="type more characters of the id",
        details={"candidates": shown},
    )
