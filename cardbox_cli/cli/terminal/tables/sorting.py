"""The order of a list that `--sort` asks for: by what a column says of an item, or by the value behind it."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from cardbox_cli.cli.terminal.tables.layout import NOTHING, Column

_NUMBER = re.compile(r"(\d+)")


class Order(NamedTuple):
    """By which column a list is sorted, and whether the greatest comes first."""

    column: Column
    descending: bool

    def sorted(self, items: Iterable[Any]) -> list[Any]:
        """The items in this order. Equal ones stay as they came; those with nothing to compare come last."""
        keyed = [(_key(self.column, item), item) for item in items]
        known = [(key, item) for key, item in keyed if key is not None]
        known.sort(key=lambda pair: pair[0], reverse=self.descending)
        return [item for _, item in known] + [item for key, item in keyed if key is None]


def _key(column: Column, item: Any) -> Any:
    if column.key is not None:
        return column.key(item)
    text = column.text(item)
    return None if text == NOTHING else _natural(text)


def _natural(text: str) -> list[str | int]:
    """A text as people sort it: in any case, and its numbers as numbers. Every second piece is one."""
    pieces = _NUMBER.split(text.casefold())
    return [int(piece) if place % 2 else piece for place, piece in enumerate(pieces)]
