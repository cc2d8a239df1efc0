"""The files of the on-disk layout as values, and back."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.chat.files import records
from cardbox_cli.chat.files.layout_files import (
    MAX_LINES,
    ChatFiles,
    TranscriptFile,
    describe_loss,
    encode_files,
    is_same_content,
    read_chat,
    roll_over,
)
from cardbox_cli.chat.files.records import TranscriptLine, milliseconds, parse_stamp
from tests.chat.layout import trees
from tests.chat.layout.trees import KEY, TREE, archive, item, line, message, older


def test_a_folder_is_written_as_it_was_read() -> None:
    chat = read_chat(KEY, trees.files())
    assert chat.skipped == []
    assert chat.ignored == []
    written = {name: trees.loaded(name, text.encode()) for name, text in encode_files(chat).items()}
    assert written == TREE


def test_each_file_type_is_parsed() -> None:
    chat = read_chat(KEY, trees.files())
    assert [moved.number for moved in chat.transcript] == [1, 2, None]
    assert chat.transcript[1].lines[0].message_id == "m3"
    assert chat.active is not None
    assert [each.body for each in chat.active] == ["first", trees.ODD]
    assert [each.context_id for each in chat.archives] == ["ctx_1a", "ctx_2b.x-y_Z"]
    assert chat.memory == TREE["memory/Primary.md"]


def test_the_index_is_written_newest_first() -> None:
    items = [item(archive(f"ctx_{number}", number)) for number in (2, 3, 1)]
    tree = {f"contexts/archive/ctx_{number}.json": archive(f"ctx_{number}", number) for number in (1, 2, 3)}
    chat = read_chat(KEY, trees.files({**tree, "contexts/index.json": {"v": 1, "items": items}}))
    index = json.loads(encode_files(chat)["contexts/index.json"])
    assert [each["contextId"] for each in index["items"]] == ["ctx_3", "ctx_2", "ctx_1"]


def test_numbered_files_are_read_in_numeric_order() -> None:
    tree = {f"conversations/archive-{n}.jsonl": [line(n, str(n))] for n in (10, 9, 2)}
    chat = read_chat(KEY, trees.files({**tree, "conversations/history.jsonl": [line(11, "11")]}))
    assert [each.text for moved in chat.transcript for each in moved.lines] == ["2", "9", "10", "11"]


def test_a_missing_file_means_no_context_and_an_empty_file_a_cleared_one() -> None:
    assert read_chat(KEY, {}).active is None
    assert read_chat(KEY, {"contexts/active.jsonl": b""}).active == []
    assert read_chat(KEY, {"contexts/active.jsonl": b"\n \n"}).active == []


GOOD = line(1, "good")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({**GOOD, "v": 2}, "v"),
        ({**GOOD, "v": "1"}, "v"),
        ({**GOOD, "ts": "2026"}, "ts"),
        ({**GOOD, "ts": 1.5}, "ts"),
        ({**GOOD, "ts": True}, "ts"),
        ({**GOOD, "ts": 10**17}, "invalid time"),
        ({**GOOD, "ts": 10**400}, "invalid time"),
        ({**GOOD, "role": "bot"}, "role"),
        ({**GOOD, "text": None}, "text"),
        ({**GOOD, "text": ["a"]}, "text"),
        ({**GOOD, "userId": 42}, "userId"),
        ({**GOOD, "meta": []}, "meta"),
        ({**GOOD, "chatKey": "another"}, "'another' is not the folder's"),
        ({key: value for key, value in GOOD.items() if key != "channel"}, "channel"),
        ({**GOOD, "text": "a\0b"}, "NUL"),
        ({**GOOD, "meta": {"a": ["\ud800"]}}, "lone surrogate"),
        ([GOOD], "Expected `object`, got `array`"),
        ("text", "Expected `object`, got `str`"),
    ],
)
def test_a_line_with_invalid_fields_is_skipped_and_reported(bad: Any, reason: str) -> None:
    data = f"{json.dumps(GOOD)}\n\n{json.dumps(bad)}\n{json.dumps(GOOD)}".encode()
    chat = read_chat(KEY, {"conversations/history.jsonl": data})
    assert [len(moved.lines) for moved in chat.transcript] == [2]
    [skipped] = chat.skipped
    assert (skipped.file, skipped.line) == ("conversations/history.jsonl", 3)
    assert reason in skipped.reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"v": 1, "ts"', "not JSON at column 15"),
        (b"\xff\xfe", "not UTF-8 (byte 0)"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"ts": 1e999999999999999999}', "1000 digits"),
    ],
)
def test_a_line_that_is_not_json_is_skipped_and_reported(data: bytes, reason: str) -> None:
    chat = read_chat(KEY, {"conversations/history.jsonl": data + b"\r\n" + trees.spelled("x.jsonl", [GOOD])})
    assert len(chat.transcript[0].lines) == 1
    [skipped] = chat.skipped
    assert skipped.line == 1
    assert reason in skipped.reason


@pytest.mark.parametrize(
    "bad",
    [
        {**message(1, "a"), "role": "tool"},
        {"ts": 1, "role": "user", "content": "a"},
        {"v": 1, "role": "user", "content": "a"},
        {"v": 1, "ts": 1, "role": "user"},
        {"v": 1, "ts": 1, "role": "user", "content": 5},
    ],
)
def test_a_message_with_invalid_fields_is_skipped(bad: Any) -> None:
    chat = read_chat(KEY, trees.files({"contexts/active.jsonl": [message(0, "a"), bad]}))
    assert chat.active is not None
    assert [each.body for each in chat.active] == ["a"]
    assert [(each.file, each.line) for each in chat.skipped] == [("contexts/active.jsonl", 2)]


def test_content_overrides_an_older_key_and_both_are_stored() -> None:
    both = {**message(1, "new"), "text": ["anything"]}
    chat = read_chat(KEY, trees.files({"contexts/active.jsonl": [both, older(2, "old")]}))
    assert chat.active is not None
    assert [each.body for each in chat.active] == ["new", "old"]
    assert [each.encode() for each in chat.active] == [both, older(2, "old")]


def test_invalid_archives_and_messages_are_skipped() -> None:
    good = archive("ctx_1", 1, {"role": "user", "content": "a"}, {"role": "system", "content": "b"})
    tree = {
        "contexts/archive/ctx_1.json": good,
        "contexts/archive/ctx_2.json": archive("ctx_other", 1),
        "contexts/archive/ctx_3.json": {**archive("ctx_3", 1), "chatKey": "another"},
        "contexts/archive/ctx_4.json": {**archive("ctx_4", 1), "createdAt": "yesterday"},
        "contexts/archive/ctx_5.json": {**archive("ctx_5", 1), "checkpoint": {"lastAssistantIndex": "1"}},
        "contexts/index.json": {"v": 1, "items": [item(archive("ctx_2", 2)), item(good), 5]},
    }
    chat = read_chat(KEY, trees.files(tree))
    assert [each.context_id for each in chat.archives] == ["ctx_1"]
    assert [each.body for each in chat.archives[0].messages] == ["a"]
    assert [each.context_id for each in chat.items or []] == ["ctx_1"]
    reasons = {f"{each.file}: {each.reason}" for each in chat.skipped}
    assert len(reasons) == len(chat.skipped) == 7
    assert any("ctx_1.json: message 2: " in reason for reason in reasons)
    assert any("ctx_4.json: invalid time 'yesterday'" in reason for reason in reasons)


def test_times_are_milliseconds_or_rfc_3339() -> None:
    assert milliseconds(parse_stamp(1_763_800_000_123)) == 1_763_800_000_123
    assert milliseconds(parse_stamp("2025-11-22T08:26:40.123Z")) == 1_763_800_000_123
    assert milliseconds(parse_stamp(-1)) == -1


def test_files_outside_the_layout_are_listed() -> None:
    found = {"conversations/notes.txt": b"", "contexts/archive/mine.json": b"{}", "memory/other.md": b"x"}
    chat = read_chat(KEY, found)
    assert chat.ignored == list(found)
    assert chat.skipped == []


# --- growing


def grown(number: int, files: Sequence[TranscriptFile] = ()) -> list[tuple[int | None, int]]:
    lines = [TranscriptLine.parse(line(each, str(each))) for each in range(number)]
    rolled = roll_over(list(files), lines)
    texts = [each.text for moved in rolled for each in moved.lines]
    assert texts[len(texts) - number :] == [str(each) for each in range(number)]
    return [(moved.number, len(moved.lines)) for moved in rolled]


def test_above_the_line_limit_the_older_half_moves() -> None:
    assert grown(MAX_LINES) == [(None, 1000)]
    assert grown(MAX_LINES + 1) == [(1, 500), (None, 501)]
    assert grown(1500) == [(1, 500), (None, 1000)]
    assert grown(2001) == [(1, 500), (2, 500), (3, 500), (None, 501)]


def test_new_files_continue_the_existing_numbers() -> None:
    some = [TranscriptLine.parse(line(1, "a"))]
    assert grown(999, [TranscriptFile(4, some), TranscriptFile(None, some)]) == [(4, 1), (None, 1000)]
    assert grown(1000, [TranscriptFile(4, some), TranscriptFile(None, some)]) == [
        (4, 1),
        (5, 500),
        (None, 501),
    ]
    # What was longer already stays as it came.
    assert grown(0, [TranscriptFile(None, some * 1500)]) == [(None, 1500)]


# --- names


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_the_folder_name_encodes_the_chat_key(chat_key: str) -> None:
    folder = records.chat_folder(chat_key)
    if folder is None:
        assert chat_key in (".", "..") or len(chat_key.encode()) * 3 > 255
    else:
        assert "/" not in folder
        assert folder.isascii()
        assert records.folder_chat_key(folder) == chat_key


def test_folder_names_use_the_encoding_of_existing_programs() -> None:
    assert records.chat_folder(KEY) == trees.FOLDER
    assert records.chat_folder("az AZ09-_.!~*'();/?:@&=+$,#[]%") == (
        "az%20AZ09-_.!~*'()%3B%2F%3F%3A%40%26%3D%2B%24%2C%23%5B%5D%25"
    )


@pytest.mark.parametrize("folder", ["a b", "a%2fb", "%zz", "%ff", "..", "群"])
def test_a_folder_with_another_encoding_is_not_a_chat(folder: str) -> None:
    assert records.folder_chat_key(folder) is None


# --- what would be lost


def loss(name: str, there: Any, now: dict[str, Any]) -> str | None:
    texts = {each: data.decode() for each, data in trees.files(now).items()}
    data = trees.spelled(name, there)
    return (
        None
        if is_same_content(name, data, texts[name])
        else describe_loss(name, data, texts[name], all_files=texts)
    )


@pytest.mark.parametrize(
    ("name", "there", "text", "same"),
    [
        ("a.json", b'{"b": [1.0, "\\u4e2d"], "a": 1}', '{"a": 1, "b": [1.0, "中"]}', True),
        ("a.json", b'{"b": [1, 2]}', '{"b": [2, 1]}', False),
        ("a.json", b"{", "{", True),
        ("a.jsonl", b'{"a": 1, "b": 2}\n\n3', '{"b":2,"a":1}\n3\n', True),
        ("a.jsonl", b"1\n2\n", "2\n1\n", False),
        # Nothing that could be written out.
        ("a.json", b"[1e999999999999999]", "{}", False),
        ("a.md", b"a", "a\n", False),
    ],
)
def test_files_with_the_same_content_are_equal(name: str, there: bytes, text: str, same: bool) -> None:
    assert is_same_content(name, there, text) is same


def test_a_grown_or_moved_transcript_loses_no_entries() -> None:
    name, moved = "conversations/history.jsonl", "conversations/archive-1.jsonl"
    first, second = line(1, "a"), line(2, "b")
    assert loss(name, [first], {name: [first, second]}) is None
    assert loss(name, [first, second], {moved: [first], name: [second]}) is None
    assert loss(name, [first, first], {name: [first, second]}) == ("has 1 entry that this chat does not have")
    assert loss(name, [line(3, "c"), line(4, "d")], {name: [first]}) == (
        "has 2 entries that this chat does not have"
    )


def test_a_grown_index_loses_no_entries() -> None:
    name, one, two = "contexts/index.json", item(archive("ctx_1", 1)), item(archive("ctx_2", 2))
    index: dict[str, Any] = {"v": 1, "items": [one]}
    assert loss(name, index, {name: {"v": 1, "items": [two, one]}}) is None
    assert loss(name, index, {name: {"v": 1, "items": [two]}}) == "lists 1 entry that this chat does not have"
    assert describe_loss(name, b"{", '{"v": 1, "items": []}', all_files={}) is not None


def test_a_changed_memory_file_is_a_loss() -> None:
    name = "memory/Primary.md"
    assert loss(name, "a\n", {name: "a\n"}) is None
    assert loss(name, "a\n", {name: "b\n"}) == "has a different content"


def test_an_empty_chat_has_no_files() -> None:
    chat = ChatFiles(chat_key=KEY, transcript=[], active=None, archives=[], items=None, memory=None)
    assert encode_files(chat) == {}
