"""Lists page by page: each next page begins where the last line of the one before was."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.store.connection.project_store import Mark

LINES = 50
"""Lines of a list."""

# What stands between the instant and the id; no instant has it.
_BETWEEN = "~"

Behind = Annotated[str | None, Query(max_length=400)]
"""Where a page begins: an instant and an id, as `following` writes them."""

BehindId = Annotated[str | None, Query(max_length=1000)]
"""Where a page of a list begins that is sorted by ids: the last one before."""

# The last place that a box can have.
_LAST_PLACE = 2**31 - 1

From = Annotated[int, Query(alias="from", ge=0, le=_LAST_PLACE)]
"""Where a window begins, counted from 0."""


def mark_of(behind: str | None, *, of_boxes: bool = False) -> Mark | None:
    """The place that an address names. Raises InvalidInput."""
    if behind is None:
        return None
    at, _, named = behind.partition(_BETWEEN)
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or (of_boxes and as_box_id(named) is None):
        raise InvalidInput(f"{behind[:40]!r} is no place in a list", hint="go back to its beginning")
    return Mark(moment, named)


def following(
    found: Sequence[Any], key: str, time: str | None = "created_at", size: int = LINES
) -> str | None:
    """Where the page behind these begins, of which one more was read than it shows; None at the end.

    A list that is sorted by ids has no `time`.
    """
    if len(found) <= size:
        return None
    last = found[size - 1]
    if time is None:
        return str(getattr(last, key))
    moment = getattr(last, time)
    return None if moment is None else f"{moment.isoformat()}{_BETWEEN}{getattr(last, key)}"
