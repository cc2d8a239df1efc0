"""What of boxes is to be shown, and how."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import msgspec

from cardbox_cli.cli.terminal.table_layout import Shown

_Place = TypeVar("_Place")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What of the boxes is to be shown, and how. `columns` are those of the table."""

    box_ids: list[str]
    full: bool
    types: frozenset[str] | None
    head: int | None
    tail: int | None
    why: bool
    strict: bool
    columns: Shown
    model: str | None

    def window(self, cards: int) -> range | None:
        """The positions that are shown of so many; None where all are, or where the cards tell which."""
        if self.types is not None or (self.head is None and self.tail is None):
            return None
        return range(cards)[: self.head] if self.tail is None else range(max(cards - self.tail, 0), cards)

    def cut(self, places: Iterable[_Place]) -> Iterator[_Place]:
        """The first or the last of these places, as asked."""
        return islice(places, self.head) if self.tail is None else iter(deque(places, self.tail))
