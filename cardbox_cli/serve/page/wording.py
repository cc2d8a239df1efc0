"""How values are worded on pages: the filters that templates use. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cardbox_cli.context.diff import Extent
from cardbox_cli.execution.views.timeline import Event
from cardbox_cli.model.cards import ROLES
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.moments import unbounded
from cardbox_cli.model.text.durations import duration
from cardbox_cli.model.text.escaping import one_line
from cardbox_cli.model.text.quantities import byte_size, count, time
from cardbox_cli.model.text.shortened import shortened

_COLOURS = {
    "bad": ("stuck", "unknown", "failed", "timeout", "error", "dropped", "expired", "lost"),
    "warn": ("waiting", "suspended", "partial", "canceled", "deferred"),
    "good": ("healthy", "success", "completed", "received", "applied"),
    "runs": ("running", "dispatched", "processing", "active"),
}
_COLOUR_OF = {word: colour for colour, words in _COLOURS.items() for word in words}
# Ids that are longer say no more to people than their ends.
_LONG_ID = 28


def colour(word: str | None) -> str:
    """The class of a state: bad, warn, good, runs, or none."""
    return _COLOUR_OF.get(word or "", "quiet")


def instant(moment: datetime) -> str:
    """An instant for machines."""
    return unbounded(moment) or moment.astimezone(UTC).isoformat()


def age(moment: datetime, now: datetime) -> str:
    """How long ago an instant was, or in how long it is, in words."""
    endless = unbounded(moment)
    if endless is not None:
        return endless
    return (
        f"in {duration(moment - now)}"
        if moment > now + timedelta(seconds=1)
        else f"{duration(now - moment)} ago"
    )


def clock(moment: datetime, first: datetime) -> str:
    """When something was, behind the first of a series: the seconds, or the longer the rounder."""
    passed = (moment - first).total_seconds()
    if passed < 100:
        return f"+{max(passed, 0):.2f}s"
    return f"+{duration(moment - first)}"


def took(step: Step) -> str:
    """How long a step took, or that it goes on."""
    if step.started_at is None or step.ended_at is None:
        return "–"
    passed = (step.ended_at - step.started_at).total_seconds()
    return f"{passed:.1f}s" if passed < 100 else duration(step.ended_at - step.started_at)


def shortish(text: str) -> str:
    """The short form of a long id, and any other text as it is."""
    return short_id(text) if len(text) >= _LONG_ID and " " not in text else text


def tokens(number: int, exact: bool = True) -> str:
    """A number of tokens; an estimate is marked."""
    return f"{'' if exact else '~'}{number:,}"


def extent(of: Extent) -> str:
    """How much of a request something is."""
    unknown = f" and those of {count(of.uncounted, 'unknown text')}" if of.uncounted else ""
    return f"{count(of.messages, 'message')}, {tokens(of.tokens, of.tokens_exact)} tokens{unknown}"


def role(name: Any) -> str:
    """The class of a role that is known."""
    return name if name in ROLES else ""


def event(of: Event) -> str:
    """The classes of what happened to a turn."""
    is_wrong = of.event == "ended" and "success" not in of.text
    return f"{of.event} wrong" if is_wrong or (of.event == "step-end" and "failed" in of.text) else of.event


def capital(text: str) -> str:
    """A sentence with its first letter made a capital."""
    return text[:1].upper() + text[1:]


def cut(text: str, most: int) -> tuple[str, bool]:
    """The beginning of a text, and whether there is more."""
    return text[:most], len(text) > most


def bytes_(number: int) -> str:
    """A number of bytes in the unit that fits."""
    return byte_size(number)


def joined(pieces: Sequence[str | None]) -> str:
    """Those of the pieces that there are."""
    return ", ".join(piece for piece in pieces if piece)


FILTERS: dict[str, Any] = {
    "bytes": bytes_,
    "capital": capital,
    "clock": clock,
    "colour": colour,
    "count": count,
    "event": event,
    "extent": extent,
    "instant": instant,
    "line": one_line,
    "role": role,
    "short": short_id,
    "shortened": shortened,
    "shortish": shortish,
    "time": time,
    "tokens": tokens,
    "took": took,
}
