"""How long something took or has lasted, in words that are the same in tables and in sentences."""

from datetime import timedelta

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
# So many of a unit tell more than one or two of the next.
_LEAST = {"d": 2, "h": 2, "m": 10}


def duration(length: timedelta) -> str:
    """A length of time in the one unit that fits: 93s, 12m, 5h, 3d. Less than nothing is 0s."""
    seconds = max(0, int(length.total_seconds()))
    for unit, size in _UNITS:
        if seconds >= _LEAST[unit] * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
