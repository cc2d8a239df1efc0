"""Comparing texts by lines and words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.model.diff import TextPart, abridge, text_diff

texts = st.text(alphabet="ab1 \n.账单\u2028\r", max_size=60) | st.text(max_size=40)


def marked(pieces: list[TextPart]) -> str:
    marks = {"same": "{}", "removed": "[-{}-]", "added": "{{+{}+}}"}
    return "".join(marks[piece.kind].format(piece.text) for piece in pieces)


@given(texts, texts)
def test_the_parts_of_a_diff_rebuild_both_texts(old: str, new: str) -> None:
    pieces = text_diff(old, new)
    assert "".join(piece.text for piece in pieces if piece.kind != "added") == old
    assert "".join(piece.text for piece in pieces if piece.kind != "removed") == new
    assert all(piece.text for piece in pieces)
    changes = [piece.kind != "same" for piece in pieces]
    assert any(changes) == (old != new)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("Refund order 118 now", "Refund order 119 now", "Refund order [-118-]{+119+} now"),
        ("Refund it", "Refund it, please", "Refund it{+, please+}"),
        ("one two three four", "one 2 3 four", "one [-two three-]{+2 3+} four"),
        ("at 14:05, 1.10 EUR", "at 15:05, 1.20 EUR", "at [-14:05-]{+15:05+}, [-1.10-]{+1.20+} EUR"),
        ("支付超时了", "支付失败了", "支付[-超时-]{+失败+}了"),
        ("a\nold line\n", "a\nquite new\n", "a\n[-old line-]{+quite new+}\n"),
        ("first\nsecond\n", "first\nsecond\nthird\n", "first\nsecond\n{+third\n+}"),
        ("nothing alike here", "7 + 5", "[-nothing alike here-]{+7 + 5+}"),
        ("", "new", "{+new+}"),
    ],
)
def test_a_diff_marks_changed_words(old: str, new: str, expected: str) -> None:
    assert marked(text_diff(old, new)) == expected


def test_text_far_from_a_change_is_left_out() -> None:
    lines = [f"line {number}" for number in range(20)]
    changed = [*lines[:10], "LINE ten", *lines[11:]]
    shown = marked(abridge(text_diff("\n".join(lines), "\n".join(changed))))
    assert shown == "…\nline 8\nline 9\n[-line 10-]{+LINE ten+}\nline 11\nline 12\n…"


def test_a_long_unchanged_line_is_shortened() -> None:
    pieces = abridge([TextPart("same", "a" * 1000), TextPart("added", "b" * 1000), TextPart("same", "c" * 9)])
    assert [(piece.text[:1], len(piece.text)) for piece in pieces] == [("…", 161), ("b", 1000), ("c", 9)]
