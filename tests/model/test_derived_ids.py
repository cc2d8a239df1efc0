from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.model.ids import DerivedIds, derived_id

PARTS = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4)


@given(PARTS, PARTS)
def test_ids_of_parts_that_begin_alike_are_those_of_all_parts(begin: list[str], parts: list[str]) -> None:
    assert DerivedIds(*begin).hex(*parts) == derived_id(*begin, *parts).hex
