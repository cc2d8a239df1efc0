"""Boxes as they are read: place by place, so that a large one is never held."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from cardbox_cli.cli.commands.box.show.asked import Asked
from cardbox_cli.cli.parameters.inputs import resolved_or_given
from cardbox_cli.cli.terminal.columns.cards import Place
from cardbox_cli.cli.terminal.reports.describe import short_rule
from cardbox_cli.cli.terminal.tables.layout import NOTHING
from cardbox_cli.model.boxes import Box, Digest, Provenance, Slot
from cardbox_cli.model.ids import unique
from cardbox_cli.model.pairing import ToolNames
from cardbox_cli.model.tokens import card_tokens
from cardbox_cli.providers.models import tokenizer_for

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore


class Totals:
    """What the places that were read come to."""

    def __init__(self, asked: Asked) -> None:
        self._digest = Digest()
        self._tokenizer = tokenizer_for(asked.model)
        self._missing: dict[str, None] = {}
        self.tokens = 0

    def add(self, slot: Slot) -> None:
        """A place that was read."""
        self._digest.add(slot.card)
        if slot.card is None or slot.state != "present":
            self._missing[slot.card_id] = None
        else:
            self.tokens += card_tokens(slot.card, self._tokenizer)

    @property
    def missing_card_ids(self) -> list[str]:
        """The ids that lead to no card that a reader sees, each once, in box order."""
        return list(self._missing)

    @property
    def digest(self) -> str:
        """The digest of the places."""
        return self._digest.hexdigest()


class Reading:
    """One box of a look. `slots` reads its places: all of them, or those of a window of positions."""

    def __init__(
        self,
        box: Box,
        provenance: Provenance | None,
        asked: Asked,
        slots: Callable[[range | None], Iterable[Slot]],
    ) -> None:
        self.box = box
        self.provenance = provenance
        self._asked = asked
        self._slots = slots

    def window(self) -> range | None:
        """The positions that are shown; None where all must be read to know, or to be counted."""
        return (
            None if self._asked.strict or self._names_tools() else self._asked.window(len(self.box.card_ids))
        )

    def places(self, totals: Totals, *, whole: bool) -> Iterator[Place]:
        """The places that are shown, each with its rule and tool; `whole` reads all others, too.

        At its end `totals` has what was read.
        """
        tools = ToolNames()

        def read() -> Iterator[Place]:
            for slot in self._slots(None if whole else self.window()):
                totals.add(slot)
                tool = None if slot.card is None else tools.of(slot.card)
                if self._is_wanted(slot):
                    yield Place(slot, self._rule(slot), tool or NOTHING)

        reading = read()
        if not whole and self.window() is not None:
            yield from reading
            return
        yield from self._asked.cut(reading)
        # What the first N left unread counts, too.
        for _ in reading:
            pass

    def _is_wanted(self, slot: Slot) -> bool:
        types = self._asked.types
        return types is None or (slot.card is not None and slot.card.type in types)

    def _names_tools(self) -> bool:
        """Whether a result's tool is shown, which the call says, wherever that stands."""
        return any(column.name == "TOOL" for column in self._asked.columns.columns)

    def _rule(self, slot: Slot) -> str:
        if self.provenance is None:
            return "unknown"
        return short_rule(self.provenance.rule_of(slot.position) or "appended later")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the boxes. Without titles the database has no place for them."""

    readings: list[Reading]
    missing: list[str]
    titles: bool


def wanted(boxes: "BoxStore", asked: Asked) -> tuple[list[str], list[str]]:
    """The ids of the boxes that there are, and of those that are missing. A lone one must be there."""
    if len(asked.box_ids) == 1:
        box_id = boxes.resolve(asked.box_ids[0])
        boxes.require(box_id)
        return [box_id], []
    named = unique(resolved_or_given(boxes.resolve, given) for given in asked.box_ids)
    there = boxes.existing(named)
    return [box_id for box_id in named if box_id in there], [each for each in named if each not in there]


def look(boxes: "BoxStore", asked: Asked) -> Look:
    """What there is now, within the caller's snapshot, which must last until all is read."""
    box_ids, missing = wanted(boxes, asked)
    readings = [_reading(boxes, box, asked) for box in boxes.get_many(box_ids).boxes]
    return Look(readings=readings, missing=missing, titles=boxes.database.keeps_box_info)


def _reading(boxes: "BoxStore", box: Box, asked: Asked) -> Reading:
    provenance = boxes.provenance(box.box_id) if asked.why else None
    return Reading(box, provenance, asked, lambda window: boxes.stream(box.box_id, window))
