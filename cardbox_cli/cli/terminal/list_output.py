"""Prints a list of the database up to its limit, with a note on the rest.

Owns what `--watch` means for a list. `options/shared_options.py` has the options that lists share.
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
from cardbox_cli.text import format_count

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.connection.project_store import Further


class Listing(NamedTuple):
    """A list: its reader, the count of further items, its columns and ids. `limit` 0 means all."""

    read: Callable[[int | None], Iterable[Any]]
    further: "Callable[[Any], Further]"
    limit: int
    columns: Shown
    item_id: Callable[[Any], str]
    empty: str


def filtered(
    newest: Callable[..., Iterable[Any]], further: "Callable[[Any, Any], Further]", where: Any
) -> "tuple[Callable[[int | None], Iterable[Any]], Callable[[Any], Further]]":
    """Return the `read` and `further` callables of a Listing for a filtered query."""
    return lambda size: newest(where, limit=size), lambda last: further(where, last)


def held_whole(
    items: Sequence[Any], limit: int
) -> "tuple[Callable[[int | None], Iterable[Any]], Callable[[Any], Further]]":
    """Return the `read` and `further` callables of a Listing for a list in memory."""
    from cardbox_cli.store.connection.project_store import Further

    return lambda size: items[:size], lambda _: Further(len(items) - limit, True)


def none_of(what: str, *, narrowed: bool) -> str:
    """Return the note on an empty list; `narrowed` if a filter applies."""
    return f"no {'such ' if narrowed else ''}{what} in project {session().project_id!r}"


def looked_into(latest: int) -> str:
    """Return the note on a project with more boxes than were searched."""
    return f"searched the {format_count(latest, 'most recently changed box')}; --latest 0 searches all"


def nothing_here(database: "Database", what: str, hint: str) -> str:
    """Return the note on an empty list, or that the project is unknown."""
    from cardbox_cli.store.projects import is_known

    project_id = session().project_id
    if is_known(database, project_id):
        return f"no {what} in project {project_id!r}; {hint}"
    return f"no {what}: unknown project {project_id!r}; list the projects with `cbx project list`"


def show_list(listing: Listing, database: "Database", *, interval: float | None = None) -> None:
    """Print a list from one snapshot; with an `interval` in seconds, print it repeatedly."""
    if interval is None:
        with database.snapshot():
            passing = _Passing(listing.read(listing.limit or None))
            _emit(listing, passing)
            _print_cut(listing, _cut(listing, passing.number, passing.last))
        return

    def look() -> "tuple[list[Any], Further | None]":
        with database.snapshot():
            items = list(listing.read(listing.limit or None))
            return items, _cut(listing, len(items), items[-1] if items else None)

    def show(seen: "tuple[list[Any], Further | None]") -> None:
        _emit(listing, seen[0])
        _print_cut(listing, seen[1])

    def oldest_first() -> list[str]:
        return [_line(listing, item) for item in reversed(look()[0])]

    if session().format.kind == "lines":
        follow(oldest_first, interval=interval)
    else:
        keep_showing(look, show, interval=interval)


class _Passing:
    """An iterator that counts its items and keeps the last one."""

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
        return output.on_a_line(listing.item_id(item))
    return exact_json.encode(item).decode()


def _cut(listing: Listing, number: int, last: Any) -> "Further | None":
    """Return the items after the limit; None if there are none, or if a program set the limit."""
    if not listing.limit or number < listing.limit or not (session().format.kind == "text" or _by_default()):
        return None
    return listing.further(last)


def _by_default() -> bool:
    source = click.get_current_context().get_parameter_source("limit")
    return source is click.core.ParameterSource.DEFAULT


def _print_cut(listing: Listing, further: "Further | None") -> None:
    if further is None or (further.all_seen and not further.count):
        return
    number = f"{further.count}{'' if further.all_seen else '+'}" if further.count else "perhaps"
    among = ", not sorted among these" if listing.columns.order is not None else ""
    announce(f"{number} more{among}; --limit 0 shows all")
