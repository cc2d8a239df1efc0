"""Counts, tokens and sizes, formatted for people."""


def format_count(number: int, noun: str) -> str:
    """Format a number and its noun, for example "1 card", "2 boxes" or "3 entries"."""
    plural = noun + ("es" if noun.endswith(("s", "x", "ch")) else "s")
    if noun.endswith("try"):
        plural = f"{noun[:-1]}ies"
    return f"{number} {noun if number == 1 else plural}"


def format_tokens(tokens: int, *, exact: bool) -> str:
    """Format a number of tokens. A number that is not exact gets a `~`."""
    return f"{'' if exact else '~'}{tokens}"


def format_size(text: str) -> str:
    return format_bytes(len(text.encode("utf-8", "surrogatepass")))


def format_bytes(number: int) -> str:
    """Format a number of bytes in the largest unit that fits, for example 12B, 3.4kB or 5.6MB."""
    for unit, length in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)):
        if number >= length:
            return f"{number / length:.1f}{unit}"
    return f"{number}B"
