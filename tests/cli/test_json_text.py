"""JSON that is written in pieces is the JSON of the whole."""

from itertools import count, islice
from typing import Any

import pytest

from cardbox_cli.cli.terminal.output import compact, compact_pieces, pretty, pretty_pieces

LONG = [{"text": "a\nb" * 9000, "of": number, "empty": [], "none": {}} for number in range(30)]
SHAPES: list[dict[str, Any]] = [
    {},
    {"list": []},
    {"a": 1, "list": [], "b": {"c": [1, {}]}},
    {"list": [1]},
    {"list": [[], {}, "x\ny"], "ü\n": None},
    {"before": [1, 2], "list": LONG, "after": {"more": LONG[:2]}},
]


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_joined_chunks_equal_the_whole_json(shape: dict[str, Any]) -> None:
    def members() -> list[tuple[str, Any]]:
        return [(name, iter(value) if name == "list" else value) for name, value in shape.items()]

    assert "".join(pretty_pieces(members())) == pretty(shape)
    assert "".join(compact_pieces(members())) == compact(shape)


@pytest.mark.parametrize("pieces", [pretty_pieces, compact_pieces])
def test_a_list_is_consumed_while_it_is_written(pieces: Any) -> None:
    """One without an end has a beginning."""
    written = "".join(islice(pieces([("list", ({"n": number} for number in count()))]), 3))
    assert '"n"' in written
