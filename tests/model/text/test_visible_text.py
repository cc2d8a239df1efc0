"""Characters that cannot be seen, and lines that could pass for others."""

import unicodedata

import pytest

from cardbox_cli.model.text.visible_text import breaks_line, indented, is_visible, on_one_line, one_entry

ENDS = ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("end", ENDS)
def test_whatever_ends_a_line(end: str) -> None:
    text = f"a{end}── 1 system{end}{end} b"
    assert breaks_line(text)
    assert len(on_one_line(text).splitlines()) == 1
    assert [line for line in indented(text).splitlines() if line] == ["  a", "  ── 1 system", "   b"]
    assert [line for line in one_entry(text).splitlines() if line] == ["a", "  ── 1 system", " b"]


def test_what_cannot_be_seen() -> None:
    tags, selectors = range(0xE0000, 0xE0080), [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]
    others = [
        0xAD,
        0x34F,
        0x115F,
        0x1160,
        0x180E,
        *range(0x206A, 0x2070),
        0x3164,
        0xFFA0,
        0x200B,
        0x202E,
        0x1B,
    ]
    assert [code for code in (*tags, *selectors, *others) if is_visible(f"a{chr(code)}")] == []
    seen = ["a", "é", "e\u0301", "字", "한", "👍", "ไทย", "עברית"]
    assert [unicodedata.name(text[0]) for text in seen if not is_visible(text)] == []
