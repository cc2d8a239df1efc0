"""Text made safe to show, matches of a search, and printed commands, read as a shell and as cbx read them."""

import subprocess
import unicodedata

import pytest

from cardbox_cli.text.command_lines import command_line, quote_argument, quote_word
from cardbox_cli.text.escaping import breaks_line, indent_lines, indent_margin, is_visible, join_lines
from cardbox_cli.text.search_terms import search_words, skip_to_match, word_pattern

ENDS = ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("end", ENDS)
def test_every_line_end_is_recognized(end: str) -> None:
    text = f"a{end}── 1 system{end}{end} b"
    assert breaks_line(text)
    assert len(join_lines(text).splitlines()) == 1
    assert [line for line in indent_lines(text).splitlines() if line] == ["  a", "  ── 1 system", "   b"]
    assert [line for line in indent_margin(text).splitlines() if line] == ["a", "  ── 1 system", " b"]


def test_invisible_characters_are_detected() -> None:
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


@pytest.mark.parametrize(
    ("query", "text", "matches"),
    [
        ("late order", "A late order, not latent ORDERS", ["late", "order"]),
        ('"late order" or -paid', "late and paid", ["late"]),
        ("late", "late_order", ["late"]),
        ("注文", "遅い注文です", ["注文"]),
        ("é", "é école", ["é"]),
    ],
)
def test_a_search_finds_whole_words_unless_their_script_has_no_spaces(
    query: str, text: str, matches: list[str]
) -> None:
    wanted = word_pattern(search_words(query))
    assert wanted is not None
    assert wanted.findall(text) == matches


def test_the_shown_text_starts_shortly_before_the_match() -> None:
    text = f"{'so many words ' * 9}and the cause"
    assert skip_to_match(text, word_pattern(["cause"])) == "…so many words and the cause"
    assert skip_to_match(text, word_pattern(["absent"])) == text


ODD = [
    "turn_1",
    "a b",
    "it's",
    "-x",
    "--force",
    "a\nb",
    "$(id)",
    "`id`",
    "\x1b[2J\\",
    "\u3164",
    "\U000e0041'",
    "*",
    "#a",
]


@pytest.mark.parametrize("name", ODD)
def test_printed_commands_are_parsed_the_same_by_a_shell(name: str) -> None:
    stop = command_line(("turn", "stop", name, "--reason", name), "--project", name)
    lines = [f"cbx turn show {quote_argument(name)}", f"cbx render --turn {quote_word(name)}", stop]
    expected = [["turn", "show", name], ["render", "--turn", name], ["turn", "stop", name, "--reason", name]]
    expected[2] += ["--project", name]
    if name.startswith("-"):
        expected[0] = ["turn", "show", "--", name]
        expected[2] = ["turn", "stop", "--reason", name, "--project", name, "--", name]
    for line, words in zip(lines, expected, strict=True):
        assert line.isprintable()
        script = f"cbx() {{ printf '%s\\0' \"$@\"; }}; {line}"
        read = subprocess.run(
            ["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
        )
        assert read.stdout.decode().split("\0")[:-1] == words
