"""What tables say of boxes and of what brought their cards."""

import re
from typing import TYPE_CHECKING

from cardbox_cli.model.boxes import Box

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore


def box_title(box: Box, boxes: "BoxStore") -> str | None:
    """A box's title; "unknown" where the database has no place for titles."""
    return box.title if boxes.database.keeps_box_info else "unknown"


def short_rule(rule: str) -> str:
    """A recipe rule as a table shows it: without the box that a card came from."""
    return _FROM_BOX.sub("", rule)


_FROM_BOX = re.compile(r" \(box [0-9a-f-]{36}\)$")
