"""Hypothesis strategies for what JSONB can hold.

One value comes back otherwise: JSONB makes a zero of a negative zero. It is generated too, and tests compare
canonical forms, which have no sign at a zero.
"""

from decimal import Decimal

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=20)
numbers = st.one_of(
    st.integers(-(10**40), 10**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=12).map(lambda number: Decimal(str(number))),
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, values, max_size=4)
