"""Numbers as they are spelled: how one is read, and how JSONB prints it."""

from decimal import Decimal, InvalidOperation

# Digits of a number that is taken in, written out as JSONB prints it, without an exponent. Three times what a
# float needs. Postgres holds up to 147,455, which is what may have to be read.
MAX_DIGITS = 1000

# Python reads no longer integers unless told to. Source: `sys.int_info.default_max_str_digits`.
_INT_DIGITS = 4300


def exact_number(text: str) -> float | Decimal:
    """The number `text` is: a float that prints just so, else a Decimal. ValueError beyond all bounds."""
    number = float(text)
    if repr(number) == text:
        return number
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"the number {text[:40]} is beyond what JSONB can hold") from None


def exact_integer(text: str) -> int | Decimal:
    """The integer that `text` is: a Decimal where it has more digits than Python reads as an int."""
    return int(text) if len(text) <= _INT_DIGITS else Decimal(text)


def printed(text: str) -> str:
    """A number as JSONB prints it: without an exponent, zero without a sign."""
    number = Decimal(text)
    return format(abs(number) if number.is_zero() else number, "f")
