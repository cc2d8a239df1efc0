"""From a piece of an id to the one id that is meant."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cardbox_cli.errors import AmbiguousId, NotFound
from cardbox_cli.model.ids import MIN_SHORT, SHORT

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database


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
