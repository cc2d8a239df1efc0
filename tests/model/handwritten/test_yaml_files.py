"""Reading YAML: what it means, where its parts stand, and the exact words for what is refused."""

import json
import re
from decimal import Decimal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.handwritten.documents import (
    MAX_DEPTH,
    FilePosition,
    HandwrittenDocument,
    document_error,
    document_from_value,
)
from cardbox_cli.model.handwritten.yaml_files import MAX_BYTES, MAX_VALUES, decode_text, read_yaml


def told(document: HandwrittenDocument) -> str:
    return document_error(InvalidInput, document.source, document.problems).message


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("", None),
        ("~", None),
        ("True", True),
        ("FALSE", False),
        ("0", 0),
        ("-12", -12),
        ("1.5", 1.5),
        ("1.10", Decimal("1.10")),
        ("1e-3", Decimal("0.001")),
        (".5", Decimal("0.5")),
        ("1e400", Decimal("1e400")),
        ("'no'", "no"),
        ('"2026-01-01"', "2026-01-01"),
        ("y", "y"),
        ("=", "="),
        ("1.2.3", "1.2.3"),
        ("123abc", "123abc"),
        ("in 2026-01-01", "in 2026-01-01"),
        (r'"\ud83d\ude00"', "😀"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        ("[a, {b: 1}]", ["a", {"b": 1}]),
        ("[]", []),
    ],
)
def test_a_plain_value_has_its_yaml_type(written: str, meant: object) -> None:
    document = read_yaml(f"key: {written}", "f.yaml")
    assert document.problems == []
    assert document.value == {"key": meant}
    assert type(document.value["key"]) is type(meant)


ODD_NUMBER = "is a number to some YAML readers and a string to others; quote it, or write it as in JSON"
ODD_WORD = "is a boolean to some YAML readers and a string to others; write true or false, or quote it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml: the file is empty except for comments"),
        ("# nothing\n\n", "f.yaml: the file is empty except for comments"),
        ("a: no", f"f.yaml:1: a: 'no' {ODD_WORD}"),
        ("a: On", f"f.yaml:1: a: 'On' {ODD_WORD}"),
        ("yes: a", f"f.yaml:1: 'yes' {ODD_WORD}"),
        ("a: 012", f"f.yaml:1: a: '012' {ODD_NUMBER}"),
        ("a: 09", f"f.yaml:1: a: '09' {ODD_NUMBER}"),
        ("a: 0o17", f"f.yaml:1: a: '0o17' {ODD_NUMBER}"),
        ("a: 0x1F", f"f.yaml:1: a: '0x1F' {ODD_NUMBER}"),
        ("a: 1_000", f"f.yaml:1: a: '1_000' {ODD_NUMBER}"),
        ("a: 12:30", f"f.yaml:1: a: '12:30' {ODD_NUMBER}"),
        ("a: .nan", f"f.yaml:1: a: '.nan' {ODD_NUMBER}"),
        ("a: 2026-01-01", "f.yaml:1: a: '2026-01-01' is a date in YAML, and JSON has no dates; quote it"),
        ("a: {<<: {b: 1}}", "f.yaml:1: a: '<<' is a merge key, which is not supported; write the keys out"),
        ("a: 1e999999", "f.yaml:1: a: is a number of more than 1000 digits, written out without an exponent"),
        (
            "a: 1e99999999999999999999",
            "f.yaml:1: a: '1e99999999999999999999' is a number too large to read",
        ),
        ('a: "\\0"', "f.yaml:1: a: holds a NUL character at offset 0"),
        ('a: "x\\ud83d"', "f.yaml:1: a: holds a lone surrogate at offset 1"),
        ("a: &x [1]\nb: *x", "f.yaml:2: b: the alias *x is not supported; write the value out"),
        (
            "a: !!python/object/apply:os.system [ls]",
            "f.yaml:1: a: the tag '!!python/object/apply:os.system' is not supported; remove it",
        ),
        ("a: !mine x", "f.yaml:1: a: the tag '!mine' is not supported; remove it"),
        ("a: 1\nb: 2\na: 3", "f.yaml:3: a: is repeated; the first one is on line 1"),
        ("a: {1: x}", "f.yaml:1: a: a key must be a string, found the number 1; quote it"),
        ("null: x", "f.yaml:1: a key must be a string, found null; quote it"),
        ("? [a]\n: b", "f.yaml:1: a key must be a string, found a list, a mapping or an alias"),
        ("a: 1\n---\nb: 2", "f.yaml:2: a second document begins here; a file holds one"),
        ("a:\n\t- b", "f.yaml:2: YAML requires spaces here, not a tab"),
        ("a: @b", "f.yaml:1: a value cannot begin with '@'; quote it"),
        ("a: b: c", "f.yaml:1: ': ' is not allowed here; check the indentation, or quote the value"),
        (
            "a:\n  - x\n b: 1",
            "f.yaml:3: this does not match the part that begins on line 1; check the indentation",
        ),
        ("a: [1,\n2", "f.yaml:2: a ',' or ']' is missing in the part that begins on line 1"),
        ("a: {b: 1", "f.yaml:1: a ',' or '}' is missing in the part that begins on line 1"),
        ("a: 'b\nc", "f.yaml:2: the quote that begins on line 1 is not closed"),
        ("a: !x!y z", "f.yaml:1: not YAML: found undefined tag handle '!x!'"),
        ('a: "\\Uffffffff"', "f.yaml:1: an escape or a directive has a number out of range"),
        ("a: b\nc: x\x07", "f.yaml:2: the character U+0007 is not allowed in YAML"),
        ("[" * 100_000, f"f.yaml:1: nested more than {MAX_DEPTH} levels deep"),
        ("? " * 100_000, f"f.yaml:1: nested more than {MAX_DEPTH} levels deep"),
        ("[" + "1," * MAX_VALUES + "]", "f.yaml:1: more than 10,000 keys and values"),
        ("x" * (MAX_BYTES + 1), "f.yaml: is larger than 1 MiB"),
    ],
)
def test_invalid_yaml_is_refused(text: str, message: str) -> None:
    assert told(read_yaml(text, "f.yaml")) == message


def test_nested_aliases_are_reported_and_not_expanded() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 30)]
    document = read_yaml("\n".join(lines), "f.yaml")
    assert len(document.problems) == 2 * 29


def test_reading_continues_after_a_problem_and_reports_all_in_order() -> None:
    text = "a: no\nb: !t [1, 2026-01-01]\na: 1\n3: x\nc: [1"
    assert told(read_yaml(text, "f.yaml")).splitlines() == [
        "f.yaml: 6 problems",
        f"f.yaml:1:4: a: 'no' {ODD_WORD}",
        "f.yaml:2:4: b: the tag '!t' is not supported; remove it",
        "f.yaml:2:11: b[1]: '2026-01-01' is a date in YAML, and JSON has no dates; quote it",
        "f.yaml:3:1: a: is repeated; the first one is on line 1",
        "f.yaml:4:1: a key must be a string, found the number 3; quote it",
        "f.yaml:5:6: a ',' or ']' is missing in the part that begins on line 5",
    ]


def test_a_mark_is_the_position_of_the_key_item_or_parent() -> None:
    document = read_yaml("# comment\na:\n  - b: 1\n  - c\n", "f.yaml")
    assert document.mark(()) == FilePosition(2, 1)
    assert document.mark(("a",)) == FilePosition(2, 1)
    assert document.mark(("a", 0)) == FilePosition(3, 5)
    assert document.mark(("a", 0, "b")) == FilePosition(3, 5)
    assert document.mark(("a", 1)) == FilePosition(4, 5)
    assert document.mark(("a", 1, "unknown")) == FilePosition(4, 5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: 1\nb: \xff", "f.yaml:2: the byte 0xff is not UTF-8 text"),
        ("a: 1".encode("utf-16"), "f.yaml:1: the byte 0xff is not UTF-8 text"),
        (b"\x7fELF\x02\x01\xb0", "f.yaml:1: the byte 0xb0 is not UTF-8 text"),
        (b"x" * (MAX_BYTES + 1), "f.yaml: is larger than 1 MiB"),
    ],
)
def test_bytes_that_are_not_utf8_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode_text(data, "f.yaml", refuse_with=InvalidInput)
    assert caught.value.message == message


def test_a_byte_order_mark_and_windows_line_ends_are_ignored() -> None:
    text = decode_text(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "f.yaml", refuse_with=InvalidInput)
    document = read_yaml(text, "f.yaml")
    assert document.value == {"a": 1, "b": 2}
    assert document.mark(("b",)) == FilePosition(2, 1)


def nested(leaves: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


STORABLE_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
# PyYAML does not quote a text such as 0E0, which is a number in JSON, and so to us.
DUMPED_TEXT = STORABLE_TEXT.filter(lambda text: not re.fullmatch(r"[-+]?[0-9]+[eE][-+]?[0-9]+", text))
JSON = nested(st.none() | st.booleans() | st.integers() | DUMPED_TEXT)


@settings(deadline=None)
@given(nested(st.none() | st.booleans() | st.integers() | st.text()))
def test_json_is_read_as_json(value: object) -> None:
    document = read_yaml(json.dumps(value), "f.json")
    if not document.problems:
        assert document.value == value


@settings(deadline=None)
@given(JSON)
def test_dumped_yaml_is_read_with_the_same_value(value: object) -> None:
    document = read_yaml(yaml.safe_dump(value), "f.yaml")
    if not document.problems:
        assert document.value == value


@settings(deadline=None)
@given(st.text() | st.text("ab:-?[]{}!&*'\"|>%@#,\n \t0.\\~<=e"))
def test_any_text_is_read_or_has_problems(text: str) -> None:
    document = read_yaml(text, "f.yaml")
    assert document.whole or document.problems


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"k[a-z]{0,5}", fullmatch=True), st.lists(st.integers()), min_size=1))
def test_every_part_is_marked_with_its_line(value: dict[str, list[int]]) -> None:
    text = yaml.safe_dump(value, default_flow_style=False)
    lines = text.splitlines()
    document = read_yaml(text, "f.yaml")
    for key, items in value.items():
        assert lines[document.marks[key,].line - 1].startswith(f"{key}:")
        if items:
            assert [lines[document.marks[key, n].line - 1][2:] for n in range(len(items))] == [
                str(item) for item in items
            ]


class TestPythonValues:
    def test_lists_and_tuples_become_lists(self) -> None:
        document = document_from_value({"a": (1, [2])}, "value")
        assert (document.value, document.problems) == ({"a": [1, [2]]}, [])

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ({1: "x"}, "value: a key must be a string, found the number 1"),
            ({"a": {None: 1}}, "value: a: a key must be a string, found null"),
            ({"a": [{1}]}, "value: a[0]: is a set, which is not a JSON value"),
            ({"a": float("nan")}, "value: a: is nan, which JSON cannot represent"),
            ({"a": "\0"}, "value: a: holds a NUL character at offset 0"),
        ],
    )
    def test_values_that_are_not_json_are_problems(self, value: object, message: str) -> None:
        assert told(document_from_value(value, "value")) == message

    def test_a_recursive_value_is_refused(self) -> None:
        value: list[object] = []
        value.append(value)
        path = "[0]" * MAX_DEPTH
        assert (
            told(document_from_value(value, "value"))
            == f"value: {path}: nested more than {MAX_DEPTH} levels deep"
        )
