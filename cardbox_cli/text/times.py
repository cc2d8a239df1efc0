"""Formatting of durations, ages and times for people, and parsing of those that people write.

Times are printed in UTC.
"""

import re
from datetime import UTC, datetime, timedelta

from cardbox_cli.errors import UsageError
from cardbox_cli.limits import EARLIEST, LATEST
from cardbox_cli.text.error_messages import invalid_message

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
# The smallest number that is formatted in each unit. Below it, the next smaller unit applies.
_MIN_OF_UNIT = {"d": 2, "h": 2, "m": 10}


def format_duration(length: timedelta) -> str:
    """Format a duration in one unit, for example 93s, 12m, 5h or 3d. A negative duration is 0s."""
    seconds = max(0, int(length.total_seconds()))
    for unit, size in _UNITS:
        if seconds >= _MIN_OF_UNIT[unit] * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def format_infinity(moment: datetime) -> str | None:
    if moment >= LATEST:
        return "infinity"
    return "-infinity" if moment <= EARLIEST else None


def format_age(moment: datetime | None, now: datetime | None = None) -> str:
    """Format the time since `moment` as `format_duration` does, but in minutes above 90 s. None gives "-"."""
    if moment is None:
        return "-"
    length = (now or datetime.now(UTC)) - moment
    minutes = length // timedelta(minutes=1)
    if 1 <= minutes < _MIN_OF_UNIT["m"] and length > timedelta(seconds=90):
        return f"{minutes}m"
    return format_infinity(moment) or format_duration(length)


def format_time(moment: datetime | None) -> str | None:
    """Format an instant in UTC, to the second."""
    if moment is None:
        return None
    return format_infinity(moment) or moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def format_milliseconds(moment: datetime) -> str:
    """Format an instant in UTC, to the millisecond."""
    formatted = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}Z"
    return format_infinity(moment) or formatted


# --- times that people write

_AGO = r"(?P<number>[0-9]*[.,]?[0-9]+)(?P<unit>[smhdw])"
_UNIT_NAMES = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MAX_SPAN = timedelta(days=36_500)


def parse_time(text: str | None, option: str) -> datetime | timedelta | None:
    """Parse an age such as 90m, or an RFC 3339 time, by default in UTC. Raises UsageError."""
    if text is None:
        return None
    if re.fullmatch(_AGO, text, re.ASCII):
        return parse_duration(text, f"{option}: ")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option}: {invalid_message('time', text)}",
            hint="for example 2026-11-22T09:30:00Z, or 90m for 90 minutes ago",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_duration(text: str, place: str = "") -> timedelta | None:
    """Parse a duration such as 90m. Returns None for other text. Raises UsageError that names `place`."""
    parts = re.fullmatch(_AGO, text, re.ASCII)
    if parts is None:
        return None
    number, unit = parts["number"], parts["unit"]
    if not number.isdigit():
        raise UsageError(
            f"{place}{text!r} is not a whole number of {_UNIT_NAMES[unit]}",
            hint="90m is one and a half hours",
        )
    try:
        # A longer number would exceed the limit anyway.
        duration = timedelta(**{_UNIT_NAMES[unit]: int(number[:18])})
    except OverflowError:
        duration = timedelta.max
    if duration > _MAX_SPAN:
        raise UsageError(
            f"{place}{text!r} is more than 100 years", hint="omit the option to include all times"
        )
    return duration
