"""Turning what a person typed, a piece of an id, into the one id that is meant."""

from collections.abc import Sequence

from cardbox_cli.errors import AmbiguousId, NotFound
from cardbox_cli.model.ids import MIN_TYPED


def like_escape(text: str) -> str:
    """`text` as a LIKE pattern that matches just it."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def the_one(noun: str, typed: str, candidates: Sequence[str], project_id: str) -> str:
    """The only candidate. Raises NotFound for none and AmbiguousId for several.

    The first word of `noun` is the command that lists such things.
    """
    if len(candidates) == 1 and (len(typed) >= MIN_TYPED or candidates[0] == typed):
        return candidates[0]
    if not candidates or len(typed) < MIN_TYPED:
        short = len(typed) < MIN_TYPED
        raise NotFound(
            f"no {noun} {typed!r} in project {project_id!r}",
            hint=f"type at least {MIN_TYPED} characters of the id"
            if short
            else f"`cbx {noun.split()[0]} list` shows the newest",
        )
    shown = sorted(candidates)[:5]
    more = " and more" if len(candidates) > len(shown) else ""
    raise AmbiguousId(
        f"{typed!r} fits several: {', '.join(shown)}{more}",
        hint="type more characters of the id, from its beginning or its end",
        details={"candidates": shown},
    )
