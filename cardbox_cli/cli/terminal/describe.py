"""How cards and boxes look to people: ages, sizes, previews."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cardbox_cli.model.boxes import Box
from cardbox_cli.model.cards import Card, CardDraft, card_text
from cardbox_cli.model.moments import unbounded
from cardbox_cli.model.pairing import call_ids
from cardbox_cli.model.text.durations import duration
from cardbox_cli.model.text.escaping import one_line

if TYPE_CHECKING:
    from cardbox_cli.store.boxes import BoxStore

PREVIEW = 80


def preview(card: Card | CardDraft, width: int = PREVIEW) -> str:
    """What a card says, on one line; the calls that it makes when it says nothing."""
    return one_line(full_text(card), width)


def full_text(card: Card | CardDraft) -> str:
    """A card's text and its tool calls, as a person would read them."""
    text = card_text(card.content)
    calls = [_call(call) for call in card.tool_calls] if isinstance(card.tool_calls, list) else []
    return "\n".join(part for part in (text, *calls) if part)


def answers(card: Card) -> str:
    """The tool calls that a card makes or answers, for `--full`."""
    made = call_ids(card)
    return ", ".join(made) if made else (card.tool_call_id or "")


def _call(call: object) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return f"→ {call}"
    return f"→ {function.get('name')}({function.get('arguments')})"


def box_title(box: Box, boxes: "BoxStore") -> str | None:
    """A box's title; "unknown" where the database has no place for titles."""
    return box.title if boxes.database.keeps_box_info else "unknown"


def short_rule(rule: str) -> str:
    """A recipe rule as a table shows it: without the box that a card came from."""
    return _FROM_BOX.sub("", rule)


_FROM_BOX = re.compile(r" \(box [0-9a-f-]{36}\)$")


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago, as `duration` says it; "-" where nobody knows."""
    if moment is None:
        return "-"
    return unbounded(moment) or duration((now or datetime.now(UTC)) - moment)


def count(number: int, noun: str) -> str:
    """A number and its noun: "1 card", "2 boxes", "3 entries"."""
    plural = noun + ("es" if noun.endswith(("s", "x")) else "s")
    if noun.endswith("try"):
        plural = f"{noun[:-1]}ies"
    return f"{number} {noun if number == 1 else plural}"


def token_count(tokens: int, *, exact: bool) -> str:
    """A number of tokens, with a `~` unless it is exact."""
    return f"{'' if exact else '~'}{tokens}"


def size(text: str) -> str:
    """The size of `text` in UTF-8, as `byte_size` says it."""
    return byte_size(len(text.encode("utf-8", "surrogatepass")))


def byte_size(count: int) -> str:
    """A number of bytes in the one unit that fits: 12B, 3.4kB, 5.6MB, 7.8GB."""
    for unit, length in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)):
        if count >= length:
            return f"{count / length:.1f}{unit}"
    return f"{count}B"


def time(moment: datetime | None) -> str | None:
    """An instant in UTC, to the second."""
    if moment is None:
        return None
    return unbounded(moment) or moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def to_millisecond(moment: datetime) -> str:
    """An instant in UTC, to the millisecond."""
    shown = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}Z"
    return unbounded(moment) or shown
