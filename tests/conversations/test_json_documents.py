"""A file's JSON values through a window of any size are what they are in one piece."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.conversations.json_documents import JsonDocuments, LazyList, load_lazy_lists
from cardbox_cli.conversations.message_lists import find_messages
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model import exact_json
from tests.conversations.reading import documents_in

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=40
)
windows = st.integers(1, 200)


def whole(value: Any) -> Any:
    """`value` with everything in it read, also what stands within large items of large lists."""
    if isinstance(value, LazyList):
        in_parts = [whole(item) for item in value.parts()]
        assert in_parts == list(value)
        return in_parts
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return value


def read(documents: JsonDocuments) -> list[Any]:
    return [whole(value) for _, value in documents]


@settings(deadline=None)
@given(value=values, window=windows, indent=st.sampled_from([None, 1]), escaped=st.booleans())
def test_one_document_is_read_through_any_window(
    value: Any, window: int, indent: int | None, escaped: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped)
    documents = documents_in(f" {text}\n\n", window=window)
    assert read(documents) == [exact_json.read(text)]
    assert read(documents) == [exact_json.read(text)]


@settings(deadline=None)
@given(
    lines=st.lists(values, min_size=2, max_size=6), window=windows, blank=st.sampled_from(["", "\n", " \r\n"])
)
def test_json_lines_are_read_through_any_window(lines: list[Any], window: int, blank: str) -> None:
    text = "".join(f"{json.dumps(value)}\n{blank}" for value in lines)
    documents = documents_in(text, window=window)
    assert documents.is_json_lines
    assert read(documents) == [exact_json.read(json.dumps(value)) for value in lines]
    assert [documents.line(number).value for number, _ in documents.numbered()] == read(documents)


@settings(deadline=None)
@given(value=values, window=windows, cut=st.data())
def test_invalid_json_is_refused_with_every_window(value: Any, window: int, cut: Any) -> None:
    text = json.dumps([value], indent=1, ensure_ascii=False)
    at = cut.draw(st.integers(0, len(text) - 1))
    broken = cut.draw(st.sampled_from([text[:at], text[:at] + text[at + 1 :], text[:at] + "}" + text[at:]]))
    assert outcome(broken, window) == outcome(broken, 10**6)


def outcome(text: str, window: int) -> Any:
    """What reading `text` gives, or where it stops."""
    try:
        return read(documents_in(text, window=window))
    except InvalidConversation as exc:
        return exc.message.rpartition(": ")[0] if ": not JSON: " in exc.message else exc.message


def test_only_a_list_larger_than_the_window_is_lazy() -> None:
    document = {"title": "t", "messages": [{"role": "user", "content": "x" * 40}] * 3, "tools": [1, 2]}
    [(_, value)] = documents_in(json.dumps(document), window=64)
    assert isinstance(value["messages"], LazyList)
    assert (value["title"], value["tools"]) == ("t", [1, 2])
    assert load_lazy_lists(value) == document


def test_a_conversation_in_a_large_list_is_found() -> None:
    message = {"role": "user", "content": "x" * 40}
    document = [{"id": "a", "messages": [message] * 3}, {"id": "b", "messages": [message]}]
    found = list(find_messages(documents_in(json.dumps(document), window=64)))
    assert [list(each.messages) for each in found] == [[message] * 3, [message]]
    assert [each.top["id"] for each in found] == ["a", "b"]


def test_a_message_larger_than_the_window_is_read_whole() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "x" * 100}] * 3}
    for text in (json.dumps({"messages": [message] * 2}), f"{json.dumps(message)}\n" * 2):
        [found] = find_messages(documents_in(text, window=64))
        assert list(found.messages) == [message] * 2


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('1\n"' + "x" * 300 + '"\n2', "f:2:1"),
        ('"' + "x" * 300, "f:1:1"),
        ('{"a": 1, "b": "' + "x" * 300 + '"}\n1', "f:1:15"),
        ("1\n" + json.dumps({str(n): "x" * 40 for n in range(9)}), "f:2:1"),
        ("[[1], " + json.dumps(["x" * 300]) + "]", "f:1:8"),
    ],
)
def test_a_value_larger_than_the_limit_is_refused(text: str, place: str) -> None:
    with pytest.raises(InvalidConversation) as raised:
        read(documents_in(text, window=64, most=200))
    assert raised.value.message == f"{place}: the value is larger than 200 characters"


def test_lists_can_exceed_the_value_limit() -> None:
    message = {"role": "user", "content": "x" * 40}
    for text in (json.dumps({"messages": [message] * 50}), f"{json.dumps([message] * 50)}\n1\n"):
        assert read(documents_in(text, window=64, most=200))


def test_a_line_that_is_read_again_has_the_same_limit() -> None:
    text = "1\n" + json.dumps({"a": ["x" * 40] * 50}) + "\n"
    documents = documents_in(text, window=64, most=200)
    assert len(list(documents.numbered())) == 2
    with pytest.raises(InvalidConversation, match="f:2: the value is larger than 200 characters"):
        documents.line(2)


def test_lines_appended_after_opening_are_not_read(tmp_path: Any) -> None:
    from cardbox_cli.conversations.json_documents import JsonSource

    path = tmp_path / "log.jsonl"
    path.write_text("1\n2\n")
    with path.open("rb") as file:
        documents = JsonDocuments(JsonSource(file, "log"))
        with path.open("a") as more:
            more.write("3\n")
        assert read(documents) == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[1, \xff]", "f is not UTF-8 (byte 4)"),
        (b'{"a":\n "\xc3"}', "f is not UTF-8 (byte 8)"),
        (b'1\n"\xff"\n', "f:2: not UTF-8 (byte 1)"),
        (b"[1, 2] [3]", "f:1:8: not JSON: Extra data"),
        (b"[1,\n 2]\n[3]", "f:3:1: not JSON: Extra data"),
        (b"1\n2 3\n", "f:2:3: not JSON: Extra data"),
        (b"[" * 100_000, "f:1:1: nested too deeply"),
        (b" \n\n ", "f is empty"),
    ],
)
def test_errors_name_the_position_in_the_file(text: bytes, message: str) -> None:
    for window in (1 << 20, 8) if len(text) < 1000 else (1 << 20,):
        with pytest.raises(InvalidConversation) as raised:
            read(documents_in(text, window=window))
        assert raised.value.message == message


def test_a_byte_order_mark_is_ignored() -> None:
    assert read(documents_in(b"\xef\xbb\xbf[1]")) == [[1]]
    assert read(documents_in(b"\xef\xbb\xbf1\n2\n", window=2)) == [1, 2]
