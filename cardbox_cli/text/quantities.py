"""Counts, tokens and sizes, formatted for people."""


def format_count(number: int, noun: str) -> str:
    """Format a number and its noun: "1 card", "2 boxes", "3 entries"."""
    plural = noun + ("es" if noun.endswith(("s", "x", "ch")) else "s")
    if noun.endswith("try"):
        plural = f"{noun[:-1]}ies"
    return f"{number} {noun if number == 1 else plural}"


def format_tokens(tokens: int, *, exact: bool) -> str:
    """Format a number of tokens, with a `~` unless it is exact."""
    return f"{'' if exact else '~'}{tokens}"


def format_size(text: str) -> str:
    return format_bytes(len(text.encode("utf-8", "surrogatepass")))


def format_bytes(number: int) -> str:
    """Format a number of bytes in the one unit that fits: 12B, 3.4kB, 5.6MB, 7.8GB."""
    for unit, length in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)):
        if number >= length:
            return f"{number / length:.1f}{unit}"
    return f"{number}B"
