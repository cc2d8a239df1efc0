from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.model.ids import DerivedIds, derived_id

PARTS = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4)


@given(PARTS, PARTS)
def test_ids_with_a_shared_prefix_equal_the_ids_of_all_parts(begin: list[str], parts: list[str]) -> None:
    assert DerivedIds(*begin).hex(*parts) == derived_id(*begin, *parts).hex
