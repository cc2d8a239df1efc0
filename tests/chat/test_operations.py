"""Transcripts grow and are never rewritten; contexts change by explicit calls, each whole or not at all."""

from datetime import timedelta

import msgspec
import pytest

from cardbox_cli.chat.chat_view import list_archives, list_entries, list_messages, read_chat_view
from cardbox_cli.chat.contexts import append_round, clear, load, start_new
from cardbox_cli.chat.persona_texts import find_memory, list_personas, set_memory, set_persona
from cardbox_cli.chat.transcript import reply, send, window_entries
from cardbox_cli.errors import AmbiguousId, BoxConflict, InvalidInput, NotFound, StaleEpoch
from cardbox_cli.model.chats import (
    BOX_CARDS,
    ChatFence,
    chat_key_prefix,
    entry_draft,
    key_parts,
    transcript_box,
)
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.store.connection.database import Database
from tests.chat.conftest import KEY
from tests.conftest import PROJECT


def talk(room: ChatStores, *texts: str, key: str = KEY) -> None:
    """A round that a run has ended: what was said is the active context."""
    with room.transaction():
        chat = room.chats.lock_or_create(key)
        drafts = [
            entry_draft(key, "assistant" if place % 2 else "user", text) for place, text in enumerate(texts)
        ]
        chat = room.chats.append(chat, drafts)
        chat = msgspec.structs.replace(chat, answered=chat.entries)
        now = room.database.now()
        room.chats.write(append_round(room, chat, [draft.card_id for draft in drafts], now), now)


def active(room: ChatStores, key: str = KEY) -> list[str]:
    return [message.content for message in list_messages(room, room.chats.get(key))]


def said(room: ChatStores, key: str = KEY) -> list[tuple[str, str]]:
    return [(entry.role, entry.text) for entry in list_entries(room, key, limit=None)]


class TestTranscript:
    def test_the_transcript_has_all_messages_in_order(self, room: ChatStores) -> None:
        send(room, KEY, "Wo ist die Küche? 🍳")
        reply(room, KEY, "Links.")
        send(room, KEY, "谢谢")
        assert said(room) == [("user", "Wo ist die Küche? 🍳"), ("assistant", "Links."), ("user", "谢谢")]

    def test_a_message_that_a_platform_delivers_twice_is_stored_once(self, room: ChatStores) -> None:
        first = send(room, KEY, "hello", platform_metadata={"message_id": "7"})
        second = send(room, KEY, "hello", platform_metadata={"message_id": "7"})
        assert (first.is_new, second.is_new, first.card_id) == (True, False, second.card_id)
        assert len(said(room)) == 1

    def test_message_ids_are_unique_per_chat_and_project(self, room: ChatStores, database: Database) -> None:
        send(room, KEY, "one", platform_metadata={"message_id": "7"})
        send(room, "telegram-chat-43", "two", platform_metadata={"message_id": "7"})
        other = ChatStores(database, "other")
        send(other, KEY, "three", platform_metadata={"message_id": "7"})
        assert said(room) == [("user", "one")]
        assert said(other) == [("user", "three")]

    def test_a_reply_answers_all_earlier_messages(self, room: ChatStores) -> None:
        send(room, KEY, "a")
        send(room, KEY, "b")
        assert read_chat_view(room, KEY).transcript.unanswered == 2
        reply(room, KEY, "c")
        assert read_chat_view(room, KEY).transcript.unanswered == 0

    def test_a_reply_of_a_run_that_has_lost_the_chat_is_not_recorded(self, room: ChatStores) -> None:
        send(room, KEY, "a")
        with pytest.raises(StaleEpoch):
            reply(room, KEY, "late", fence=ChatFence(KEY, "run_gone", 1))
        assert said(room) == [("user", "a")]

    @pytest.mark.parametrize("text", ["", " \n"])
    def test_a_blank_message_changes_nothing(self, room: ChatStores, text: str) -> None:
        with pytest.raises(InvalidInput, match="blank"):
            send(room, KEY, text)
        assert room.chats.find(KEY) is None

    @pytest.mark.parametrize("key", ["", " ", "a\x1b[2J", "-x", "@last", "k" * 513])
    def test_an_invalid_key_is_refused(self, room: ChatStores, key: str) -> None:
        with pytest.raises(InvalidInput):
            send(room, key, "hello")

    def test_each_box_holds_a_thousand_entries(self, room: ChatStores) -> None:
        count = 2 * BOX_CARDS + 5
        with room.transaction():
            chat = room.chats.lock_or_create(KEY)
            chat = room.chats.append(chat, [entry_draft(KEY, "user", f"m{i}") for i in range(7)])
            chat = room.chats.append(chat, [entry_draft(KEY, "user", f"m{i}") for i in range(7, count)])
            chat = room.chats.write(chat, room.database.now())
        assert [entry.text for entry in room.chats.entries(chat, 0)] == [f"m{i}" for i in range(count)]
        middle = room.chats.entries(chat, BOX_CARDS - 2, BOX_CARDS + 2)
        assert [entry.position for entry in middle] == list(range(BOX_CARDS - 2, BOX_CARDS + 2))
        newest = room.boxes.get(chat.transcript_box_id or "")
        assert (newest.box_id, len(newest.card_ids)) == (transcript_box(PROJECT, KEY, count), 5)
        assert newest.parent_ids == [transcript_box(PROJECT, KEY, BOX_CARDS)]
        assert [entry.text for entry in window_entries(room, chat, count)] == [
            f"m{i}" for i in range(count - 30, count)
        ]


class TestNewContext:
    def test_a_new_context_archives_the_old_one(self, room: ChatStores) -> None:
        talk(room, "plan a trip", "to Rome?")
        context_id = read_chat_view(room, KEY).context_id
        changed = start_new(room, KEY, title="Trip", reason="done")
        assert changed.archived == context_id
        [archive] = list_archives(room, KEY, limit=None)
        assert (archive.title, archive.reason, archive.messages) == ("Trip", "done", 2)
        assert (archive.checkpoint_index, archive.checkpoint_preview) == (1, "to Rome?")
        assert (active(room), read_chat_view(room, KEY).context_id) == ([], None)

    def test_an_empty_context_is_not_archived(self, room: ChatStores) -> None:
        talk(room, "a", "b")
        start_new(room, KEY)
        assert start_new(room, KEY).archived is None
        assert len(list_archives(room, KEY, limit=None)) == 1

    def test_the_window_begins_after_a_new_context(self, room: ChatStores) -> None:
        talk(room, "a", "b")
        start_new(room, KEY)
        send(room, KEY, "c")
        chat = room.chats.get(KEY)
        assert [entry.text for entry in window_entries(room, chat, chat.entries)] == ["c"]

    def test_an_unknown_chat_is_refused(self, room: ChatStores) -> None:
        with pytest.raises(NotFound, match="no chat"):
            start_new(room, "nobody")


class TestLoadContext:
    def test_loading_by_id_archives_the_active_context(self, room: ChatStores) -> None:
        talk(room, "plan a trip", "to Rome?")
        old = start_new(room, KEY).archived
        talk(room, "bake a cake", "with apples?")
        replaced = read_chat_view(room, KEY).context_id
        changed = load(room, KEY, old)
        assert (changed.archived, changed.loaded) == (replaced, old)
        assert active(room) == ["plan a trip", "to Rome?"]
        assert read_chat_view(room, KEY).context_id == old
        assert load(room, KEY, words="apples cake").loaded == replaced

    def test_an_unchanged_snapshot_is_not_archived_again(self, room: ChatStores) -> None:
        talk(room, "a", "b")
        first = start_new(room, KEY).archived
        talk(room, "c", "d")
        second = start_new(room, KEY).archived
        load(room, KEY, first)
        assert load(room, KEY, second).archived == first
        assert start_new(room, KEY).archived == second
        assert len(list_archives(room, KEY, limit=None)) == 2

    def test_a_continued_snapshot_becomes_a_new_context(self, room: ChatStores) -> None:
        talk(room, "a", "b")
        first = start_new(room, KEY).archived
        load(room, KEY, first)
        talk(room, "c", "d")
        seen = read_chat_view(room, KEY)
        assert (seen.loaded_from, active(room)) == (first, ["a", "b", "c", "d"])
        assert start_new(room, KEY).archived == seen.context_id != first
        load(room, KEY, first)
        assert active(room) == ["a", "b"]

    def test_a_snapshot_is_loaded_by_a_part_of_its_id(self, room: ChatStores) -> None:
        talk(room, "a", "b")
        first = start_new(room, KEY).archived or ""
        talk(room, "c", "d")
        start_new(room, KEY)
        assert load(room, KEY, first[-8:]).loaded == first
        with pytest.raises(AmbiguousId):
            load(room, KEY, first[:8])

    @pytest.mark.parametrize("wanted", ["ctx_none", "x", ""])
    def test_an_unknown_id_is_refused(self, room: ChatStores, wanted: str) -> None:
        talk(room, "a", "b")
        with pytest.raises(NotFound):
            load(room, KEY, wanted or "_")
        assert active(room) == ["a", "b"]

    def test_snapshots_of_other_chats_and_projects_are_not_found(
        self, room: ChatStores, database: Database
    ) -> None:
        talk(room, "secret plan", "yes")
        context_id = start_new(room, KEY, title="secret plan").archived or ""
        talk(room, "x", "y", key="telegram-chat-43")
        other = ChatStores(database, "other")
        talk(other, "x", "y")
        for stranger, key in ((room, "telegram-chat-43"), (other, KEY)):
            with pytest.raises(NotFound):
                load(stranger, key, context_id)
            with pytest.raises(NotFound):
                load(stranger, key, words="secret plan")

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            ("Rome", "Trip"),
            ("rome", "Trip"),
            ("apples oven", "Cake"),
            ("trip cake oven", "Cake"),
            ("上下文", "中文"),
            ("上下文归档吗", "中文"),
            ("app", "Cake"),
            ("🍰", "Cake"),
        ],
    )
    def test_a_snapshot_is_loaded_by_words_and_parts_of_words(
        self, room: ChatStores, words: str, found: str
    ) -> None:
        for title, first, second in (
            ("Trip", "plan a trip", "to Rome?"),
            ("Cake", "bake a cake 🍰", "with apples, in the oven?"),
            ("中文", "请解释上下文归档", "好的"),
        ):
            talk(room, first, second)
            start_new(room, KEY, title=title)
        changed = load(room, KEY, words=words)
        [archive] = [
            each for each in list_archives(room, KEY, limit=None) if each.context_id == changed.loaded
        ]
        assert archive.title == found
        assert changed.why

    def test_a_query_or_title_that_is_too_long_is_refused(self, room: ChatStores) -> None:
        talk(room, "plan a trip", "to Rome?")
        with pytest.raises(InvalidInput, match=r"has \d{5} characters; the limit is 500"):
            load(room, KEY, words=" ".join(f"w{number}" for number in range(4_000)))
        with pytest.raises(InvalidInput, match=r"--title: 60000 characters exceed the limit of 500"):
            start_new(room, KEY, title="a trip" * 10_000)
        assert start_new(room, KEY, title="x" * 500).archived

    def test_a_title_match_ranks_above_reason_and_text_matches(self, room: ChatStores) -> None:
        talk(room, "about refunds", "yes")
        in_text = start_new(room, KEY, title="One").archived
        talk(room, "a", "b")
        in_reason = start_new(room, KEY, title="Two", reason="refunds are settled").archived
        talk(room, "c", "d")
        in_title = start_new(room, KEY, title="refunds").archived
        assert load(room, KEY, words="refunds").loaded == in_title
        assert {in_text, in_reason} < {each.context_id for each in list_archives(room, KEY, limit=None)}

    def test_an_old_title_ranks_above_many_newer_text_matches(self, room: ChatStores) -> None:
        talk(room, "a", "b")
        titled = start_new(room, KEY, title="refund").archived
        for _ in range(25):
            talk(room, "a refund", "yes")
            start_new(room, KEY)
        assert load(room, KEY, words="refund").loaded == titled


class TestClearContext:
    def test_clear_preserves_only_the_transcript(self, room: ChatStores) -> None:
        talk(room, "a", "b")
        clear(room, KEY)
        assert (active(room), list_archives(room, KEY, limit=None)) == ([], [])
        assert [text for _, text in said(room)] == ["a", "b"]
        assert read_chat_view(room, KEY).reset_by == "clear"


class TestMemoryAndPersonas:
    def test_a_memory_change_adds_a_card_and_the_latest_is_used(self, room: ChatStores) -> None:
        first = set_memory(room, KEY, "likes tea")
        second = set_memory(room, KEY, "likes coffee")
        found = find_memory(room, KEY)
        assert found is not None
        assert (found.text, found.card_id) == ("likes coffee", second)
        assert [card.content for card in room.cards.get_many([first]).cards]

    def test_a_blank_text_removes_the_memory(self, room: ChatStores) -> None:
        set_memory(room, KEY, "likes tea")
        set_memory(room, KEY, "")
        assert find_memory(room, KEY) is None

    def test_the_primary_persona_comes_first(self, room: ChatStores) -> None:
        set_persona(room, "Aside", "be brief")
        set_persona(room, "primary", "be kind")
        set_persona(room, "Primary", "be wise")
        assert [(each.name, each.text) for each in list_personas(room)] == [
            ("primary", "be wise"),
            ("Aside", "be brief"),
        ]


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("telegram-chat-42-topic-7", "telegram-chat-42"),
        ("telegram-chat--100-topic-7", "telegram-chat--100"),
        ("telegram-chat-42", "telegram-chat-42"),
        ("anything", "anything"),
    ],
)
def test_the_prefix_of_a_key_has_no_topic(key: str, near: str) -> None:
    assert chat_key_prefix(key) == near
    assert key_parts(near).topic is None


def test_a_deleted_entry_leaves_an_empty_place(room: ChatStores, database: Database) -> None:
    send(room, KEY, "a")
    second = send(room, KEY, "b")
    room.cards.delete([second.card_id])
    send(room, KEY, "c")
    assert [entry.text for entry in list_entries(room, KEY, limit=None)] == ["a", "", "c"]
    assert timedelta(0) <= database.now() - room.chats.get(KEY).updated_at


@pytest.mark.parametrize("which", ["transcript", "full transcript", "context", "archive"])
def test_only_chat_commands_can_change_the_boxes_of_a_chat(room: ChatStores, which: str) -> None:
    with room.transaction():
        chat = room.chats.lock_or_create(KEY)
        drafts = [entry_draft(KEY, "user", f"m{i}") for i in range(BOX_CARDS + 1)]
        room.chats.write(room.chats.append(chat, drafts), room.database.now())
    talk(room, "a", "b")
    start_new(room, KEY)
    talk(room, "c", "d")
    chat = room.chats.get(KEY)
    box_id = {
        "transcript": transcript_box(PROJECT, KEY, chat.entries),
        "full transcript": transcript_box(PROJECT, KEY, 0),
        "context": chat.context_box_id or "",
        "archive": list_archives(room, KEY, limit=None)[0].box_id,
    }[which]
    held = room.boxes.get(box_id).card_ids
    for change in (
        lambda: room.boxes.append(box_id, held[:1]),
        lambda: room.boxes.replace(box_id, held[:1]),
        lambda: room.boxes.delete(box_id),
    ):
        with pytest.raises(BoxConflict, match=f"of chat '{KEY}'"):
            change()
    assert room.boxes.get(box_id).card_ids == held
