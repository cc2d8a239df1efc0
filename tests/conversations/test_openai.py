"""What is imported comes out as it went in, whatever a message holds."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cardbox_cli.conversations.conversation import Conversation, FileEntry
from cardbox_cli.conversations.formats.registry import find_format
from cardbox_cli.conversations.importing import ImportedBox, import_conversations
from cardbox_cli.errors import CardConflict, InvalidCard, InvalidConversation
from cardbox_cli.model import exact_json
from cardbox_cli.providers.openai.cards import card_of_message
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from tests import jsonb_values
from tests.conversations.reading import documents_in

FORMAT = find_format("openai")

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "f", "arguments": '{ "a":1.0,\n "a": "\\u00e9" }'},
}

MESSAGES: dict[str, dict[str, Any]] = {
    "system": {"role": "system", "content": "Be kind."},
    "developer": {"role": "developer", "content": "Be brief."},
    "user": {"role": "user", "content": "Hi"},
    "user with a name": {"role": "user", "content": "Hi", "name": "ann"},
    "user without content": {"role": "user"},
    "null content": {"role": "user", "content": None},
    "empty content": {"role": "assistant", "content": ""},
    "text parts": {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    "image part": {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}}],
    },
    "audio part": {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]},
    "file part": {"role": "user", "content": [{"type": "file", "file": {"file_id": "f-1"}}]},
    "no parts": {"role": "user", "content": []},
    "assistant": {"role": "assistant", "content": "Hello"},
    "calls": {"role": "assistant", "content": None, "tool_calls": [CALL]},
    "calls and text": {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL, {**CALL, "id": "call_2"}]},
    "calls and empty text": {"role": "assistant", "content": "", "tool_calls": [CALL]},
    "calls without content": {"role": "assistant", "tool_calls": [CALL]},
    "no calls": {"role": "assistant", "content": "x", "tool_calls": []},
    "null calls": {"role": "assistant", "content": "x", "tool_calls": None},
    "refusal": {"role": "assistant", "content": None, "refusal": "I cannot."},
    "refusal part": {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    "reasoning": {"role": "assistant", "content": "42", "reasoning_content": "6 times 7"},
    "audio answer": {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
    "legacy call": {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
    "legacy result": {"role": "function", "name": "f", "content": "ok"},
    "result": {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
    "result with a name": {"role": "tool", "tool_call_id": "call_1", "content": "ok", "name": "f"},
    "empty result": {"role": "tool", "tool_call_id": "call_1", "content": ""},
    "result in parts": {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "ok"}]},
    "result without an id": {"role": "tool", "content": "ok"},
    "unknown keys": {"role": "user", "content": "x", "cache": {"a": [1.10, 1e400 if False else 10**30]}, "n": None},
    "a card's own key": {"role": "user", "content": "x", "metadata": {"role": "system"}, "type": "message"},
}  # fmt: skip


def of(messages: list[Any], own_id: str | None = None, place: str = "test") -> Conversation:
    entries = [FileEntry(str(n), message, f"{place}: message {n}") for n, message in enumerate(messages)]
    return Conversation(entries=entries, place=place, own_id=own_id, title=None, format="openai")


@pytest.fixture
def take(database: Database) -> Any:
    def run(*conversations: Conversation, **options: Any) -> list[ImportedBox]:
        return import_conversations(database, "p", conversations, **options).boxes

    return run


def exported(boxes: BoxStore, box_id: str) -> Any:
    """What another program reads of an export."""
    return json.loads("".join(FORMAT.export(boxes.view(box_id).cards)))["messages"]


@pytest.mark.parametrize("name", MESSAGES)
def test_every_message_type_survives_a_round_trip(take: Any, boxes: BoxStore, name: str) -> None:
    (box,) = take(of([MESSAGES[name]]))
    assert exported(boxes, box.box_id) == [MESSAGES[name]]


def test_all_message_types_survive_in_one_conversation(take: Any, boxes: BoxStore) -> None:
    (box,) = take(of(list(MESSAGES.values())))
    assert exported(boxes, box.box_id) == list(MESSAGES.values())
    assert (box.cards, box.new_cards) == (len(MESSAGES), len(MESSAGES))


parts = st.lists(st.dictionaries(jsonb_values.texts, jsonb_values.values, max_size=3), max_size=3)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"])},
    optional={
        "content": st.none() | jsonb_values.texts | parts,
        "name": jsonb_values.texts | jsonb_values.values,
        "tool_calls": st.none() | parts | jsonb_values.values,
        "tool_call_id": st.none() | jsonb_values.texts | jsonb_values.values,
        "refusal": st.none() | jsonb_values.texts,
        "extra": jsonb_values.values,
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversation=st.lists(messages, min_size=1, max_size=5))
def test_any_messages_survive_a_round_trip(
    take: Any, boxes: BoxStore, conversation: list[dict[str, Any]]
) -> None:
    (box,) = take(of(conversation))
    back = exact_json.read("".join(FORMAT.export(boxes.view(box.box_id).cards)))["messages"]
    assert exact_json.are_equal(back, conversation)
    (again,) = take(of(conversation))
    assert (again.box_id, again.new_cards) == (box.box_id, 0)


def test_source_messages_are_stored_only_if_cards_cannot_express_them(take: Any, cards: CardStore) -> None:
    take(
        of([MESSAGES[name] for name in ("system", "user", "assistant", "calls", "calls and text", "result")])
    )
    take(of([MESSAGES["result with a name"]]))
    assert [card.card_id for card in cards.newest() if "source_message" in card.metadata] == []


def test_imported_cards_get_types_and_fields_of_their_messages(take: Any, boxes: BoxStore) -> None:
    (box,) = take(
        of([MESSAGES[name] for name in ("developer", "user", "calls and text", "result with a name")])
    )
    rows = [
        (card.type, card.role, card.tool_call_id, card.metadata.get("function_name"))
        for card in boxes.view(box.box_id).cards
    ]
    assert rows == [
        ("sys.rendered_prompt", "developer", None, None),
        ("task.instruction", "user", None, None),
        ("agent.thought", "assistant", None, None),
        ("tool.result", "tool", "call_1", "f"),
    ]


class TestRepeatedImport:
    def test_a_longer_copy_appends_only_the_new_messages(self, take: Any, boxes: BoxStore) -> None:
        first, second = MESSAGES["user"], MESSAGES["assistant"]
        (box,) = take(of([first], "chat-1"))
        (grown,) = take(of([first, second], "chat-1"))
        assert (grown.box_id, grown.cards, grown.new_cards) == (box.box_id, 2, 1)
        assert exported(boxes, box.box_id) == [first, second]

    def test_a_shorter_copy_changes_nothing(self, take: Any, boxes: BoxStore) -> None:
        (box,) = take(of([MESSAGES["user"], MESSAGES["assistant"]], "chat-1"))
        (older,) = take(of([MESSAGES["user"]], "chat-1"))
        assert (older.box_id, older.new_cards) == (box.box_id, 0)
        assert len(boxes.get(box.box_id).card_ids) == 2

    def test_a_conversation_with_a_changed_history_gets_a_new_box(self, take: Any, boxes: BoxStore) -> None:
        first, changed = MESSAGES["user"], {"role": "user", "content": "Hello"}
        (box,) = take(of([first, MESSAGES["assistant"]], "chat-1"))
        (new,) = take(of([changed, MESSAGES["assistant"]], "chat-1"))
        assert new.box_id != box.box_id
        assert boxes.get(new.box_id).parent_ids == [box.box_id]
        assert exported(boxes, box.box_id) == [first, MESSAGES["assistant"]]
        (again,) = take(of([changed, MESSAGES["assistant"], first], "chat-1"))
        assert (again.box_id, again.new_cards) == (new.box_id, 1)

    def test_a_box_with_foreign_cards_is_not_extended(self, take: Any, boxes: BoxStore) -> None:
        (box,) = take(of([MESSAGES["user"]], "chat-1"))
        boxes.append(box.box_id, ["note"], allow_dangling=True)
        (grown,) = take(of([MESSAGES["user"], MESSAGES["assistant"]], "chat-1"))
        assert grown.box_id != box.box_id
        assert boxes.get(box.box_id).card_ids[-1] == "note"

    def test_equal_conversations_in_one_file_share_a_box(self, take: Any) -> None:
        one, two = take(of([MESSAGES["user"]]), of([MESSAGES["user"]]))
        assert one.box_id == two.box_id
        assert (one.new_cards, two.new_cards) == (1, 0)

    def test_projects_never_share_ids(self, take: Any, database: Database) -> None:
        (mine,) = take(of([MESSAGES["user"]], "chat-1"))
        (theirs,) = import_conversations(database, "q", [of([MESSAGES["user"]], "chat-1")]).boxes
        assert (theirs.new_cards, theirs.box_id != mine.box_id) == (1, True)


class TestToolIds:
    CONVERSATION = (
        MESSAGES["calls"],
        MESSAGES["result"],
        MESSAGES["calls"],
        MESSAGES["result with a name"],
        {"role": "tool", "tool_call_id": "orphan", "content": "?"},
    )

    def test_repeated_ids_are_accepted_without_a_unique_index(self, take: Any, boxes: BoxStore) -> None:
        (box,) = take(of(list(self.CONVERSATION)))
        assert exported(boxes, box.box_id) == list(self.CONVERSATION)

    def test_a_unique_index_on_results_refuses_repeated_ids(self, take: Any, database: Database) -> None:
        make_results_unique(database)
        with pytest.raises(CardConflict) as raised:
            take(of(list(self.CONVERSATION)))
        first, second = (card_of_message(message) for message in (self.CONVERSATION[1], self.CONVERSATION[3]))
        assert first.tool_call_id == second.tool_call_id == "call_1"
        assert "tool call 'call_1' already has a result" in raised.value.message
        assert raised.value.hint is not None
        assert "--remap-tool-ids" in raised.value.hint
        assert list(CardStore(database, "p").newest()) == []

    def test_remapping_makes_ids_unique_and_exports_the_originals(
        self, take: Any, boxes: BoxStore, database: Database
    ) -> None:
        make_results_unique(database)
        (box,) = take(of(list(self.CONVERSATION)), remap_tool_ids=True)
        assert exported(boxes, box.box_id) == list(self.CONVERSATION)
        stored = boxes.view(box.box_id).cards
        assert stored[0].tool_calls[0]["id"] == stored[1].tool_call_id
        assert stored[2].tool_calls[0]["id"] == stored[3].tool_call_id
        assert len({stored[1].tool_call_id, stored[3].tool_call_id, stored[4].tool_call_id}) == 3
        (again,) = take(of(list(self.CONVERSATION)), remap_tool_ids=True)
        assert again.new_cards == 0


def make_results_unique(database: Database) -> None:
    database.connection.execute(
        "CREATE UNIQUE INDEX uniq_cards_tool_result_call ON cards (tenant_id, md5(tool_call_id))"
        " WHERE tool_call_id IS NOT NULL AND metadata ->> 'type' = 'tool.result'"
    )


@pytest.mark.parametrize(
    ("messages", "error", "text"),
    [
        ([{"role": "human", "content": "x"}], InvalidConversation, "test: message 0: unknown role 'human' for format openai"),
        (["x"], InvalidConversation, "test: message 0: a message must be an object, not a string"),
        (
            [MESSAGES["user"], {"role": "user", "content": "a\x00"}],
            InvalidCard,
            "test: message 1: content: holds a NUL character at offset 1",
        ),
        (
            [{"role": "user", "content": "x", "score": float("nan")}],
            InvalidCard,
            "test: message 0: score: is nan, which JSON cannot represent",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "\ud83d"}]}],
            InvalidCard,
            "test: message 0: content[0].text: holds a lone surrogate at offset 0",
        ),
    ],
)  # fmt: skip
def test_a_bad_message_stops_the_whole_import(
    take: Any, cards: CardStore, messages: list[Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        take(of([MESSAGES["user"]], "good"), of(messages))
    assert str(raised.value) == text
    assert list(cards.newest()) == []


def test_a_long_import_is_written_in_batches(take: Any, boxes: BoxStore) -> None:
    conversations = [
        of([{"role": "user", "content": f"{n}-{i}"} for i in range(700)], f"c{n}") for n in range(20)
    ]
    imported = take(*conversations)
    assert [box.new_cards for box in imported] == [700] * 20
    original = [entry.value for entry in conversations[19].entries]
    assert exported(boxes, imported[19].box_id) == original


def test_real_conversations_survive_a_round_trip(take: Any, boxes: BoxStore, real_data: Path) -> None:
    file = real_data / "tau-bench_gpt-4o-airline_first40.json"
    text = file.read_text()
    original = [run["traj"] for run in json.loads(text)]
    documents = documents_in(text, file.name)
    imported = take(*FORMAT.read(documents, at="traj"))
    assert [exported(boxes, box.box_id) for box in imported] == original
    again = take(*FORMAT.read(documents))
    assert sum(box.new_cards for box in again) == 0
    assert [box.box_id for box in again] == [box.box_id for box in imported]
