"""Ages, sizes and counts in words, the same wherever people read them. Pure."""

from datetime import UTC, datetime

from cardbox_cli.model.moments import unbounded
from cardbox_cli.model.text.durations import duration


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
