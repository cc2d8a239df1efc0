"""Prints a list from the database up to its limit, with a note on the rest.

This module also implements `--watch` for lists. `options/shared_options.py` has the options of all lists.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Shown
from cardbox_cli.cli.terminal.watch import follow, keep_showing
from cardbox_cli.model import exact_json
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.project_store import FurtherCount


class Listing(NamedTuple):
    """A list: its reader, the count of further items, its columns and ids. `limit` 0 means all."""

    read: Callable[[int | None], Iterable[Any]]
    further: "Callable[[Any], FurtherCount]"
    limit: int
    columns: Shown
    item_id: Callable[[Any], str]
    empty: str


def filter_readers(
    newest: Callable[..., Iterable[Any]], further: "Callable[[Any, Any], FurtherCount]", where: Any
) -> "tuple[Callable[[int | None], Iterable[Any]], Callable[[Any], FurtherCount]]":
    """Return the `read` and `further` callables of a Listing for a filtered query."""
    return lambda size: newest(where, limit=size), lambda last: further(where, last)


def list_in_memory(
    items: Sequence[Any], limit: int
) -> "tuple[Callable[[int | None], Iterable[Any]], Callable[[Any], FurtherCount]]":
    """Return the `read` and `further` callables of a Listing for a list in memory."""
    from cardbox_cli.store.connection.project_store import FurtherCount

    return lambda size: items[:size], lambda _: FurtherCount(len(items) - limit, True)


def empty_note(what: str, *, narrowed: bool) -> str:
    return f"no {'such ' if narrowed else ''}{what} in project {session().project_id!r}"


def searched_boxes_note(latest: int) -> str:
    return f"searched the {format_count(latest, 'most recently changed box')}; --latest 0 searches all"


def empty_project_note(database: "Database", what: str, hint: str) -> str:
    from cardbox_cli.store.projects import is_known

    project_id = session().project_id
    if is_known(database, project_id):
        return f"no {what} in project {project_id!r}; {hint}"
    return f"no {what}: unknown project {project_id!r}; list the projects with `cbx project list`"


def show_list(listing: Listing, database: "Database", *, interval: float | None = None) -> None:
    """Print a list from one snapshot; with an `interval` in seconds, print it repeatedly."""
    if interval is None:
        with database.snapshot():
            passing = _CountedItems(listing.read(listing.limit or None))
            _emit(listing, passing)
            _print_cut(listing, _cut(listing, passing.number, passing.last))
        return

    def look() -> "tuple[list[Any], FurtherCount | None]":
        with database.snapshot():
            items = list(listing.read(listing.limit or None))
            return items, _cut(listing, len(items), items[-1] if items else None)

    def show(page: "tuple[list[Any], FurtherCount | None]") -> None:
        _emit(listing, page[0])
        _print_cut(listing, page[1])

    def oldest_first() -> list[str]:
        return [_line(listing, item) for item in reversed(look()[0])]

    if session().format.kind == "lines":
        follow(oldest_first, interval=interval)
    else:
        keep_showing(look, show, interval=interval)


class _CountedItems:
    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items
        self.number = 0
        self.last: Any = None

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self.number, self.last = self.number + 1, item
            yield item


def _emit(listing: Listing, items: Iterable[Any]) -> None:
    output.emit_list(items, columns=listing.columns, item_id=listing.item_id, empty=listing.empty)


def _line(listing: Listing, item: Any) -> str:
    if session().output == "id":
        return output.require_one_line(listing.item_id(item))
    return exact_json.encode(item).decode()


def _cut(listing: Listing, number: int, last: Any) -> "FurtherCount | None":
    """Return the count of items after the limit, or None if there are none or a program set the limit."""
    source = click.get_current_context().get_parameter_source("limit")
    is_noted = session().format.kind == "text" or source is click.core.ParameterSource.DEFAULT
    return listing.further(last) if is_noted and 0 < listing.limit <= number else None


def _print_cut(listing: Listing, further: "FurtherCount | None") -> None:
    if further is None or (further.all_seen and not further.count):
        return
    number = f"{further.count}{'' if further.all_seen else '+'}" if further.count else "perhaps"
    among = ", not sorted among these" if listing.columns.order is not None else ""
    announce(f"{number} more{among}; --limit 0 shows all")
