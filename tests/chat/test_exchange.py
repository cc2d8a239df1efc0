"""Chats from files of the on-disk layout, and back: what goes in comes out, and nothing is taken twice."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.chat.chat_view import read_chat_view
from cardbox_cli.chat.contexts import clear, load, start_new
from cardbox_cli.chat.files.chat_export import export_chat
from cardbox_cli.chat.files.chat_import import ImportedChat, import_chat
from cardbox_cli.chat.files.layout_files import encode_files, read_chat
from cardbox_cli.chat.persona_texts import set_memory
from cardbox_cli.chat.transcript import reply, send
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.chats import message_time
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.store.connection.database import Database
from tests.chat.layout import trees
from tests.chat.layout.trees import KEY, TREE, archive, line, message
from tests.conftest import PROJECT


@pytest.fixture
def room(database: Database) -> ChatStores:
    return ChatStores(database, PROJECT)


def taken(room: ChatStores, tree: dict[str, Any], *, replace: bool = False) -> ImportedChat:
    return import_chat(room, read_chat(KEY, trees.files(tree)), replace=replace)


def given_back(room: ChatStores) -> dict[str, Any]:
    with room.snapshot():
        exported = export_chat(room, KEY)
    assert exported.gone == []
    return {name: trees.loaded(name, text.encode()) for name, text in encode_files(exported.files).items()}


def entries(room: ChatStores) -> list[str]:
    return [entry.text for entry in room.chats.stream_entries(room.chats.get(KEY))]


def active(room: ChatStores) -> list[tuple[str, str]]:
    return [(each.role, each.content) for each in read_chat_view(room, KEY).messages]


def test_an_exported_folder_equals_the_imported_one(room: ChatStores) -> None:
    done = taken(room, TREE)
    assert (done.entries, done.new_entries, done.messages, done.archives, done.new_archives) == (
        7,
        7,
        2,
        2,
        2,
    )
    assert (done.context, done.memory, done.differing) == ("imported", "imported", [])
    assert given_back(room) == TREE


def test_a_second_import_changes_nothing(room: ChatStores, row_counts: Any) -> None:
    taken(room, TREE)
    before, head = row_counts(), room.chats.get(KEY)
    done = taken(room, TREE)
    assert (done.new_entries, done.new_archives, done.context, done.memory) == (
        0,
        0,
        "unchanged",
        "unchanged",
    )
    assert row_counts() == before
    assert room.chats.get(KEY) == head


def test_an_export_can_be_imported_here_and_into_another_project(
    room: ChatStores, database: Database
) -> None:
    send(
        room, KEY, "怎么退款？", platform_metadata={"message_id": "m1", "channel": "telegram", "user_id": "7"}
    )
    reply(room, KEY, "填表 🎉")
    taken(room, {"contexts/active.jsonl": [message(1, "a"), message(2, "b", "assistant")]})
    start_new(room, KEY, title="退款", reason="done")
    send(room, KEY, trees.ODD)
    set_memory(room, KEY, "likes tea")
    files = given_back(room)
    assert taken(room, files).new_entries == 0
    assert given_back(room) == files

    elsewhere = ChatStores(database, "elsewhere")
    done = taken(elsewhere, files)
    assert (done.new_entries, done.new_archives) == (3, 1)
    assert given_back(elsewhere) == files
    assert read_chat_view(elsewhere, KEY).messages == []
    assert load(elsewhere, KEY, words="退款").messages == 2


def test_a_chat_that_cbx_began_is_exported_in_the_layout(room: ChatStores) -> None:
    key = "telegram-chat-42-topic-7"
    send(room, key, "hello", platform_metadata={"user_id": "7", "meta": {"a": 1.10}})
    with room.snapshot():
        [moved] = export_chat(room, key).files.transcript
    [spelled] = [each.encode() for each in moved.lines]
    ts = spelled.pop("ts")
    assert isinstance(ts, int)
    assert spelled == {
        "v": 1,
        "channel": "telegram",
        "chatId": "42",
        "chatKey": key,
        "userId": "7",
        "role": "user",
        "text": "hello",
        "meta": {"a": 1.10},
    }


def test_a_chat_that_cbx_began_has_an_index_that_counts_messages(room: ChatStores) -> None:
    send(room, KEY, "hello")
    load_tree = {"contexts/active.jsonl": [message(1, "a"), message(2, "b", "assistant")]}
    taken(room, load_tree)
    start_new(room, KEY, title="one")
    [item] = given_back(room)["contexts/index.json"]["items"]
    assert (item["title"], item["messages"], "turns" in item) == ("one", 2, False)


def test_files_of_the_first_programs_are_exported_unchanged(room: ChatStores, tmp_path: Path) -> None:
    read = read_chat(KEY, trees.files(trees.FIRST_TREE))
    assert (read.skipped, read.ignored) == ([], [])
    done = taken(room, trees.FIRST_TREE)
    assert (done.archives, done.new_archives) == (1, 1)
    assert given_back(room) == trees.FIRST_TREE
    assert taken(room, trees.FIRST_TREE).new_archives == 0
    assert load(room, KEY, words="退款").messages == 2
    assert active(room) == [("user", "怎么退款？"), ("assistant", "填表")]


def test_the_active_context_of_the_first_programs_is_read(room: ChatStores) -> None:
    name = "contexts/active.json"
    tree = {**trees.FIRST_TREE, name: trees.FIRST_ACTIVE}
    read = read_chat(KEY, trees.files(tree))
    assert (read.skipped, read.ignored) == ([], [])
    assert taken(room, tree).messages == 2
    assert active(room) == [("user", "Noch da?"), ("assistant", "Ja")]
    turns = trees.FIRST_ACTIVE["turns"]
    assert given_back(room) == {**trees.FIRST_TREE, "contexts/active.jsonl": turns}
    both = {**tree, "contexts/active.jsonl": [message(7, "newer")]}
    newer = read_chat(KEY, trees.files(both))
    assert ([each.body for each in newer.active or []], newer.ignored) == (["newer"], [name])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"chatKey": "other"}, "chatKey 'other' is not the folder's"),
        ({"turns": None}, "Expected `array`, got `null` - at `$.turns`"),
        (
            {"turns": [trees.turn(1, "a"), {"role": "user"}]},
            "message 2: Object missing required field `content`",
        ),
        ({"v": 2}, "Invalid enum value 2 - at `$.v`"),
    ],
)
def test_an_invalid_active_snapshot_is_skipped_and_named(changed: dict[str, Any], reason: str) -> None:
    tree = {"contexts/active.json": {**trees.FIRST_ACTIVE, **changed}}
    read = read_chat(KEY, trees.files(tree))
    assert [(each.file, each.reason) for each in read.skipped] == [("contexts/active.json", reason)]


def test_an_index_entry_without_a_number_is_skipped(room: ChatStores) -> None:
    index = trees.FIRST_TREE["contexts/index.json"]
    [entry] = index["items"]
    bare = {key: value for key, value in entry.items() if key != "turns"}
    tree = {**trees.FIRST_TREE, "contexts/index.json": {**index, "items": [bare]}}
    [skipped] = read_chat(KEY, trees.files(tree)).skipped
    assert skipped.reason == "item 1: Object missing required field `messages`"


def test_a_grown_folder_adds_only_new_entries(room: ChatStores) -> None:
    name, context = "conversations/history.jsonl", "contexts/active.jsonl"
    first = {name: [line(1, "a")], context: [message(1, "a")]}
    grown = {name: [line(1, "a"), line(1, "a"), line(2, "b")], context: [message(1, "a"), message(2, "b")]}
    taken(room, first)
    done = taken(room, grown)
    assert (done.new_entries, done.context) == (2, "imported")
    assert entries(room) == ["a", "a", "b"]
    assert given_back(room) == grown
    assert taken(room, first).context == "ahead"
    assert given_back(room) == grown


def test_lines_that_moved_to_another_file_are_not_imported_again(room: ChatStores) -> None:
    taken(room, {"conversations/history.jsonl": [line(1, "a"), line(2, "b")]})
    moved = {"conversations/archive-1.jsonl": [line(1, "a")], "conversations/history.jsonl": [line(2, "b")]}
    assert taken(room, moved).new_entries == 0


def test_a_redelivered_message_matches_the_imported_one(room: ChatStores) -> None:
    taken(room, {"conversations/history.jsonl": [line(1, "a", messageId="m1")]})
    assert not send(room, KEY, "a", platform_metadata={"message_id": "m1", "channel": "telegram"}).is_new
    edited = [line(1, "a", messageId="m1"), line(2, "a, edited", messageId="m1")]
    assert taken(room, {"conversations/history.jsonl": edited}).new_entries == 1
    assert entries(room) == ["a", "a, edited"]


def test_a_message_that_the_platform_has_delivered_is_not_imported_again(room: ChatStores) -> None:
    send(room, KEY, "a", platform_metadata={"message_id": "m1"})
    assert taken(room, {"conversations/history.jsonl": [line(1, "a", messageId="m1")]}).new_entries == 0


def test_a_context_that_differs_is_preserved_without_replace(room: ChatStores) -> None:
    taken(room, {"contexts/active.jsonl": [message(1, "a"), message(2, "b", "assistant")]})
    other = {"contexts/active.jsonl": [message(1, "c")]}
    assert taken(room, other).context == "kept"
    assert active(room) == [("user", "a"), ("assistant", "b")]
    assert taken(room, other, replace=True).context == "imported"
    assert active(room) == [("user", "c")]
    assert load(room, KEY, words="b").messages == 2


def test_an_import_does_not_restore_a_cleared_context(room: ChatStores) -> None:
    tree = {"contexts/active.jsonl": [message(1, "a")]}
    taken(room, tree)
    clear(room, KEY)
    assert taken(room, tree).context == "kept"
    assert active(room) == []


def test_imported_entries_keep_their_times(room: ChatStores) -> None:
    taken(room, TREE)
    start = datetime.fromtimestamp(trees.START / 1000, UTC)
    [*_, last] = read_chat_view(room, KEY).messages
    assert last.said_at == start + timedelta(seconds=6)
    [first, *_] = room.chats.entries(room.chats.get(KEY), 0)
    assert first.card is not None
    assert message_time(first.card) == start + timedelta(seconds=1)
    archived = room.archives.find(KEY, "ctx_1a")
    assert archived is not None
    assert archived.archived_at == start + timedelta(seconds=101)


def test_an_empty_file_is_a_cleared_context(room: ChatStores) -> None:
    tree = {"conversations/history.jsonl": [line(1, "a")], "contexts/active.jsonl": []}
    assert taken(room, tree).context == "imported"
    shown = read_chat_view(room, KEY)
    assert (shown.reset_by, shown.transcript.window.start) == ("clear", 1)
    assert taken(room, tree).context == "unchanged"
    assert given_back(room) == tree


def test_a_missing_context_file_imports_no_context(room: ChatStores) -> None:
    tree = {"conversations/history.jsonl": [line(1, "a")]}
    assert taken(room, tree).context == "absent"
    shown = read_chat_view(room, KEY)
    assert (shown.reset_by, shown.transcript.window.start) == (None, 0)
    assert given_back(room) == tree


def test_user_messages_after_the_last_reply_are_unanswered(room: ChatStores) -> None:
    said = [line(1, "a"), line(2, "b", "assistant"), line(3, "c"), line(4, "d")]
    taken(room, {"conversations/history.jsonl": said})
    assert read_chat_view(room, KEY).transcript.unanswered == 2


def test_imported_archives_are_searchable_and_unchanged(room: ChatStores) -> None:
    taken(room, TREE)
    changed = load(room, KEY, words="怎么退款")
    assert changed.loaded == "ctx_1a"
    assert active(room) == [("user", "怎么退款？"), ("assistant", "填表")]
    other = archive("ctx_1a", 1, message(1, "another"))
    done = taken(room, {"contexts/archive/ctx_1a.json": other})
    assert (done.new_archives, done.differing) == (0, ["ctx_1a"])


def test_a_memory_that_differs_is_preserved(room: ChatStores) -> None:
    set_memory(room, KEY, "mine")
    assert taken(room, {"memory/Primary.md": "theirs"}).memory == "kept"
    assert given_back(room) == {"memory/Primary.md": "mine"}
    assert taken(room, {"memory/Primary.md": "theirs"}, replace=True).memory == "imported"
    assert given_back(room) == {"memory/Primary.md": "theirs"}


def test_a_long_transcript_of_several_files_survives_a_round_trip(room: ChatStores) -> None:
    tree = {
        "conversations/archive-1.jsonl": [line(each, f"a{each}") for each in range(1500)],
        "conversations/history.jsonl": [line(each, f"b{each}") for each in range(999)],
    }
    assert taken(room, tree).new_entries == 2499
    assert given_back(room) == tree
    send(room, KEY, "c1")
    send(room, KEY, "c2")
    files = given_back(room)
    lines = {name: len(texts) for name, texts in files.items()}
    assert lines == {
        "conversations/archive-1.jsonl": 1500,
        "conversations/archive-2.jsonl": 500,
        "conversations/history.jsonl": 501,
    }
    assert taken(room, files).new_entries == 0


def test_projects_never_mix(room: ChatStores, database: Database) -> None:
    taken(room, TREE)
    other = ChatStores(database, "elsewhere")
    assert taken(other, TREE).new_entries == 7
    send(other, KEY, "only there")
    assert given_back(room) == TREE


def test_an_invalid_chat_key_is_refused_and_changes_nothing(room: ChatStores, row_counts: Any) -> None:
    before = row_counts()
    with pytest.raises(InvalidInput, match="invisible character"):
        import_chat(room, read_chat("a\x1bb", {}))
    assert row_counts() == before


def test_deleted_cards_are_listed_and_left_out(room: ChatStores, tmp_path: Path) -> None:
    taken(room, {"conversations/history.jsonl": [line(1, "a"), line(2, "b")]})
    [first, _] = room.chats.entries(room.chats.get(KEY), 0)
    room.cards.delete([first.card_id])
    with room.snapshot():
        exported = export_chat(room, KEY)
    assert exported.gone == [first.card_id]
    assert [each.text for moved in exported.files.transcript for each in moved.lines] == ["b"]
    # What was deleted does not come back from its file.
    assert taken(room, {"conversations/history.jsonl": [line(1, "a"), line(2, "b")]}).new_entries == 0
