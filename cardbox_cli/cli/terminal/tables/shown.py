"""Which columns of a list are shown, and in which order its items come: as a person asked, or as usual.

Knows no kind of item: which columns there are stands in `columns/`, or where the list is printed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.tables.layout import Column
from cardbox_cli.cli.terminal.tables.sorting import Order
from cardbox_cli.errors import UsageError
from cardbox_cli.text import did_you_mean

Columns = Sequence[Column]


class Shown(NamedTuple):
    """The columns of a list that are shown, and the order of its items where one is asked for."""

    columns: Columns
    order: Order | None = None

    def arranged(self, items: Iterable[Any]) -> Iterable[Any]:
        """The items in the order of the list."""
        return items if self.order is None else self.order.sorted(items)

    def replaced(self, **texts: Callable[[Any], str]) -> "Shown":
        """The same with another text in some columns. They are called with `_` for a space."""
        return self._replace(columns=replaced(self.columns, **texts))


def chosen(columns: Columns, given: str | None) -> Shown:
    """The columns that `--columns`, else the config file, names; without either those of the format.

    These are all for `-o wide`, CSV and TSV, else all but the extras. Raises UsageError.
    """
    here = session()
    if given is not None and not here.format.has_columns:
        raise UsageError(
            f"--columns is for tables, not for -o {here.output}",
            hint="pick keys out of -o json with jq, or print ids alone with -o id",
        )
    return Shown(_wanted(columns, given), _order(columns, here.sort))


def _wanted(columns: Columns, given: str | None) -> Columns:
    if given is not None:
        return [_kept(_named(columns, name, "--columns")) for name in given.split(",")]
    configured = session().configured_columns()
    if session().format.shows_all:
        return columns
    if configured is not None:
        return [_kept(_named(columns, name, configured.place)) for name in configured.value.split(",")]
    return [column for column in columns if not column.extra]


def _kept(column: Column) -> Column:
    """A column that somebody asked for: it does not go where room is little."""
    return column._replace(spare=0)


def _order(columns: Columns, given: str | None) -> Order | None:
    if given is None:
        return None
    name, _, direction = given.partition(":")
    if direction not in ("", "asc", "desc"):
        raise UsageError(f"--sort: {direction!r} is no order", hint=f"{name}:desc puts the greatest first")
    return Order(_named(columns, name, "--sort"), direction == "desc")


def _named(columns: Columns, given: str, place: str) -> Column:
    known = {_plain(column.name): column for column in columns}
    if _plain(given) not in known:
        names = [name.replace(" ", "-") for name in known]
        guess = did_you_mean(_plain(given).replace(" ", "-"), names)
        raise UsageError(
            f"{place}: there is no column {given.strip()!r}{guess}", hint=f"there are {', '.join(names)}"
        )
    return known[_plain(given)]


def picked(columns: Columns, *names: str) -> Columns:
    """The columns of these names."""
    known = {column.name: column for column in columns}
    return [known[name] for name in names]


def replaced(columns: Columns, **texts: Callable[[Any], str]) -> Columns:
    """These columns, some with another text. They are called with `_` for a space."""
    return [column._replace(text=texts.get(column.name.replace(" ", "_"), column.text)) for column in columns]


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", " ").replace("_", " ")
