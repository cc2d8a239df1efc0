"""Anthropic conversations come out as they went in, and their cards are what other formats can read."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.conversations.formats.registry import export_format_names, find_exporter, find_format
from cardbox_cli.errors import CardConflict, InvalidCard, InvalidConversation
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.providers.registry import providers
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardFilter, CardStore
from tests.conversations.anthropic_messages import (
    CACHED,
    FOUND,
    IMAGE,
    MESSAGES,
    PROMPTS,
    REDACTED,
    RESULT,
    SEARCH,
    TEXT,
    THINKING,
    USE,
    assistant,
    conversations,
    user,
)
from tests.conversations.conftest import Export, ImportText
from tests.conversations.test_openai import make_results_unique
from tests.conversations.test_openai import messages as openai_messages

PROPERTY = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def canonical(value: Any) -> bytes:
    return exact_json.canonical(exact_json.encode(value))


@pytest.fixture
def there_and_back(import_text: ImportText, export: Export) -> Any:
    """What another program reads of a conversation that was imported and exported again."""

    def run(document: Any) -> Any:
        [box] = import_text("anthropic", json.dumps(document))
        return json.loads(export(box.box_id, "anthropic"))

    return run


@pytest.fixture
def cards_of(import_text: ImportText, boxes: BoxStore) -> Any:
    def run(document: Any, source_format: str = "anthropic", **options: Any) -> list[Card]:
        [box] = import_text(source_format, json.dumps(document), **options)
        return boxes.view(box.box_id).cards

    return run


class TestRoundTrip:
    @pytest.mark.parametrize("name", MESSAGES)
    def test_every_message_type_survives_a_round_trip(self, there_and_back: Any, name: str) -> None:
        assert there_and_back([MESSAGES[name]]) == {"messages": [MESSAGES[name]]}

    def test_all_message_types_survive_in_one_conversation(self, there_and_back: Any) -> None:
        every = list(MESSAGES.values())
        assert there_and_back({"messages": every + every}) == {"messages": every + every}

    @pytest.mark.parametrize("name", PROMPTS)
    def test_every_system_prompt_survives_a_round_trip(self, there_and_back: Any, name: str) -> None:
        document = {"system": PROMPTS[name], "messages": [MESSAGES["a system message"], MESSAGES["text"]]}
        request = {**document, "model": "m", "max_tokens": 9}
        assert there_and_back(document) == document
        assert there_and_back(request) == request

    def test_each_conversation_of_a_file_is_imported(self, import_text: ImportText, export: Export) -> None:
        documents = [{"system": f"Be {n}.", "messages": [MESSAGES["text"], MESSAGES["a call"]]} for n in "ab"]
        for text in (json.dumps(documents), "\n".join(map(json.dumps, documents))):
            imported = import_text("anthropic", text)
            assert [json.loads(export(box.box_id, "anthropic")) for box in imported] == documents

    def test_the_system_prompt_is_read_next_to_nested_messages(self, there_and_back: Any) -> None:
        body = {"system": "Be kind.", "messages": [MESSAGES["text"]]}
        assert there_and_back({"request": {"body": body}, "system": "not this one"}) == body

    @PROPERTY
    @given(document=conversations)
    def test_any_conversation_survives_a_round_trip(
        self, import_text: ImportText, export: Export, document: dict[str, Any]
    ) -> None:
        text = exact_json.encode(document).decode()
        [box] = import_text("anthropic", text)
        back = exact_json.read(export(box.box_id, "anthropic"))
        is_request = document.keys() & {"tools", "max_tokens"} and not document.keys() & {"id", "title"}
        kept = {key: value for key, value in document.items() if is_request or key in ("system", "messages")}
        assert canonical(back) == canonical(kept)
        reordered = exact_json.encode({**kept, **back}).decode()
        [again] = import_text("anthropic", reordered)
        assert (again.box_id, again.new_cards) == (box.box_id, 0)

    @PROPERTY
    @given(document=conversations)
    def test_any_conversation_can_be_sent_and_exported_anywhere(
        self, import_text: ImportText, boxes: BoxStore, document: dict[str, Any]
    ) -> None:
        [box] = import_text("anthropic", exact_json.encode(document).decode())
        self.check_every_way_out(boxes.view(box.box_id).cards)

    @PROPERTY
    @given(document=openai_messages)
    def test_any_openai_message_can_be_sent_and_exported_anywhere(
        self, import_text: ImportText, boxes: BoxStore, document: dict[str, Any]
    ) -> None:
        [box] = import_text("openai", exact_json.encode(document).decode())
        self.check_every_way_out(boxes.view(box.box_id).cards)

    @staticmethod
    def check_every_way_out(cards: list[Card]) -> None:
        entries = [
            RequestEntry(slot=Slot(n, card.card_id, card, "present"), box_id="b")
            for n, card in enumerate(cards)
        ]
        for dialect in providers():
            assert exact_json.encode(dialect.body(request_of(entries, encode=dialect.encode)))
        for name in export_format_names():
            text = "".join(find_exporter(name)(cards))
            documents = filter(None, text.split("\n")) if name == "claude-code" else [text]
            wanted = list if name == "langchain" else dict
            assert all(isinstance(exact_json.read(each), wanted) for each in documents)


class TestCards:
    def test_cards_get_types_roles_and_fields_of_their_blocks(self, cards_of: Any) -> None:
        cards = cards_of(
            {
                "system": "Be kind.",
                "messages": [
                    MESSAGES["text"],
                    assistant(THINKING, TEXT, USE, SEARCH, FOUND),
                    user(RESULT, {**RESULT, "tool_use_id": "toolu_2", "is_error": True}, TEXT),
                ],
            }
        )
        rows = [(card.type, card.role, card.content.text, card.tool_call_id) for card in cards]
        assert rows == [
            ("sys.rendered_prompt", "system", "Be kind.", None),
            ("task.instruction", "user", "Hi", None),
            ("agent.reasoning", "assistant", "6 times 7", None),
            ("agent.thought", "assistant", "Let me look.", None),
            ("agent.aside", "assistant", "web_search\ngrass colour\nMeadows\nhttps://m.example", None),
            ("tool.result", "tool", "ok", "toolu_1"),
            ("tool.result", "tool", "ok", "toolu_2"),
            ("task.instruction", "user", "Let me look.", None),
        ]
        call = {"name": "f", "arguments": '{"a":["é"],"b":1.5}'}
        assert cards[3].tool_calls == [{"id": "toolu_1", "type": "function", "function": call}]
        groups = [card.metadata.get("source_group") for card in cards]
        assert groups[:2] == [None, None]
        assert len({*groups[2:5]}) == len({*groups[5:]}) == 1
        assert groups[2] != groups[5]

    def test_source_blocks_are_stored_only_if_cards_cannot_express_them(self, cards_of: Any) -> None:
        cards = cards_of(
            [MESSAGES[name] for name in ("text", "an answer", "text and calls", "a result", "thinking")]
        )
        kept = {key for card in cards for key in card.metadata if key.startswith("source_")}
        assert kept == {"source_group"}
        assert cards[-2].metadata["signature"] == "c2ln"

    def test_the_blocks_of_a_cited_sentence_form_one_line(self, cards_of: Any) -> None:
        cited = MESSAGES["cited text"]["content"]
        [card] = cards_of([assistant(*cited, {"type": "text", "text": "."}, TEXT)])
        assert card.content.text == "Grass is green.\nLet me look."

    @pytest.mark.parametrize("word", ["Monday", "snippet", "Meadows", "colour", "times", "shine"])
    def test_text_of_every_block_is_searchable(self, cards_of: Any, cards: CardStore, word: str) -> None:
        names = ("a text document", "a search result", "thinking", "a server's tool", "an unknown block")
        cards_of([MESSAGES[name] for name in names])
        assert list(cards.newest(CardFilter(text=word))) != []

    def test_opaque_bytes_are_not_found(self, cards_of: Any, cards: CardStore) -> None:
        cards_of([MESSAGES[name] for name in ("a server's tool", "redacted thinking", "an image")])
        for word in ("Zm9v", "b3BhcXVl", "c2ln", "AA"):
            assert list(cards.newest(CardFilter(text=word))) == []

    def test_one_file_imported_in_two_formats_makes_two_boxes(self, import_text: ImportText) -> None:
        text = json.dumps([MESSAGES["a text block"]])
        (ours,), (theirs,) = (import_text(name, text) for name in ("anthropic", "openai"))
        assert (ours.new_cards, theirs.new_cards) == (1, 1)
        assert ours.box_id != theirs.box_id

    def test_equal_conversations_have_equal_digests_in_any_project(
        self, import_text: ImportText, boxes: BoxStore, database: Any
    ) -> None:
        text = json.dumps([MESSAGES["thinking"], MESSAGES["results and text"]])
        (here,), (there,) = (import_text("anthropic", text, project) for project in ("p", "q"))
        assert boxes.view(here.box_id).digest == BoxStore(database, "q").view(there.box_id).digest


class TestRepeatedImport:
    def test_a_longer_copy_appends_only_the_new_messages(
        self, import_text: ImportText, export: Export
    ) -> None:
        document = {"id": "c", "system": "Be kind.", "messages": [MESSAGES["thinking"]]}
        [box] = import_text("anthropic", json.dumps(document))
        document["messages"] += [MESSAGES["results and text"]]
        [grown] = import_text("anthropic", json.dumps(document))
        assert (grown.box_id, grown.cards, grown.new_cards) == (box.box_id, 6, 3)
        assert json.loads(export(box.box_id, "anthropic"))["messages"] == document["messages"]


class TestToolIds:
    def test_repeated_ids_are_remapped_and_exported_unchanged(
        self, import_text: ImportText, export: Export, boxes: BoxStore, database: Any
    ) -> None:
        make_results_unique(database)
        messages = [
            assistant(USE),
            user(RESULT),
            assistant(TEXT, USE),
            user({**RESULT, "is_error": True}, TEXT),
        ]
        with pytest.raises(CardConflict):
            import_text("anthropic", json.dumps(messages))
        [box] = import_text("anthropic", json.dumps(messages), remap_tool_ids=True)
        assert json.loads(export(box.box_id, "anthropic")) == {"messages": messages}
        cards = boxes.view(box.box_id).cards
        assert cards[0].tool_calls[0]["id"] == cards[1].tool_call_id != "toolu_1"
        assert cards[2].tool_calls[0]["id"] == cards[3].tool_call_id != cards[1].tool_call_id


class TestOtherFormats:
    def test_a_conversation_is_exported_to_openai(self, import_text: ImportText, export: Export) -> None:
        document = {
            "system": "Be kind.",
            "messages": [
                user(IMAGE, TEXT),
                assistant(THINKING, TEXT, USE, REDACTED, {**USE, "id": "toolu_2"}),
                user(RESULT, {**RESULT, "tool_use_id": "toolu_2", "content": [TEXT, IMAGE]}, TEXT),
                assistant(SEARCH, FOUND, {"type": "text", "text": "Done."}),
            ],
        }
        [box] = import_text("anthropic", json.dumps(document))
        function = {"name": "f", "arguments": '{"a":["é"],"b":1.5}'}
        assert json.loads(export(box.box_id, "openai"))["messages"] == [
            {"role": "system", "content": "Be kind."},
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}, TEXT],
            },
            {
                "role": "assistant",
                "content": "Let me look.",
                "tool_calls": [
                    {"id": f"toolu_{n}", "type": "function", "function": function} for n in (1, 2)
                ],
            },
            {"role": "tool", "tool_call_id": "toolu_1", "content": "ok"},
            {"role": "tool", "tool_call_id": "toolu_2", "content": "Let me look.\n[image]"},
            {"role": "user", "content": "Let me look."},
            {"role": "assistant", "content": "Done."},
        ]

    def test_an_openai_conversation_is_exported_to_anthropic(
        self, import_text: ImportText, export: Export
    ) -> None:
        call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        messages = [
            {"role": "system", "content": "Be kind."},
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}],
            },
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
            {"role": "developer", "content": "Be brief."},
            {"role": "assistant", "content": "Done."},
        ]
        [box] = import_text("openai", json.dumps(messages))
        use = {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}}
        assert json.loads(export(box.box_id, "anthropic")) == {
            "system": [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}],
            "messages": [
                user(IMAGE),
                assistant(use),
                user({**RESULT, "tool_use_id": "call_1"}),
                {"role": "assistant", "content": "Done."},
            ],
        }
        lines = [json.loads(line) for line in export(box.box_id, "claude-code").split("\n")]
        assert lines[0] == {"type": "system", "content": "Be kind."}
        assert lines[2] == {"type": "assistant", "message": assistant(use)}


class TestInvalidIdCharacters:
    @pytest.fixture
    def pair(self, import_text: ImportText, boxes: BoxStore) -> Any:
        """Two calls of a message whose ids differ in one character, and their results in the other order."""
        calls = [
            {"id": each, "type": "function", "function": {"name": name, "arguments": "{}"}}
            for each, name in (("c.1", "f"), ("c_1", "g"))
        ]
        results = [
            {"role": "tool", "tool_call_id": each, "content": said}
            for each, said in (("c_1", "G"), ("c.1", "F"))
        ]
        messages = [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
        [box] = import_text("openai", json.dumps({"messages": messages}))
        return boxes.view(box.box_id).cards

    @pytest.mark.parametrize("source_format", ["anthropic", "claude-code"])
    def test_invalid_ids_are_exported_with_allowed_characters(
        self, pair: list[Card], source_format: str
    ) -> None:
        text = "".join(find_format(source_format).export(pair))
        if source_format == "anthropic":
            made = json.loads(text)["messages"]
        else:
            made = [json.loads(line)["message"] for line in text.split("\n")]
        asked, *told = [message["content"] for message in made]
        assert [(block["name"], block["id"]) for block in asked] == [("f", "c_1_2"), ("g", "c_1")]
        assert [(block["content"], block["tool_use_id"]) for [block] in told] == [
            ("G", "c_1"),
            ("F", "c_1_2"),
        ]

    def test_ids_of_stored_blocks_and_their_results_are_unchanged(
        self, pair: list[Card], cards_of: Any
    ) -> None:
        [kept] = cards_of([assistant({**USE, "id": "c.1"})])
        made = json.loads("".join(find_format("anthropic").export([kept, pair[2]])))["messages"]
        assert made == [
            assistant({**USE, "id": "c.1"}),
            user({"type": "tool_result", "tool_use_id": "c.1", "content": "F"}),
        ]


class TestPartialMessages:
    """A box may hold only some cards of a message."""

    @pytest.fixture
    def parts(self, cards_of: Any) -> list[Card]:
        return cards_of(
            [assistant(THINKING, {**TEXT, **CACHED}, USE, SEARCH, id="msg_1"), user(RESULT, TEXT)]
        )

    def test_the_last_cards_of_a_message_form_a_message(self, parts: list[Card]) -> None:
        exported = json.loads("".join(find_format("anthropic").export(parts[1:])))
        assert exported["messages"] == [assistant({**TEXT, **CACHED}, USE, SEARCH), user(RESULT, TEXT)]

    def test_the_head_of_a_message_is_a_message(self, parts: list[Card]) -> None:
        assert json.loads("".join(find_format("anthropic").export(parts[:1]))) == {
            "messages": [assistant(THINKING, id="msg_1")]
        }

    def test_each_part_alone_is_a_message(self, parts: list[Card]) -> None:
        alone = [
            json.loads("".join(find_format("anthropic").export([card])))["messages"] for card in parts[2:]
        ]
        assert alone == [[assistant(SEARCH)], [user(RESULT)], [{"role": "user", "content": "Let me look."}]]

    def test_a_card_in_between_splits_a_message(self, parts: list[Card]) -> None:
        mixed = [parts[0], parts[3], parts[1]]
        assert json.loads("".join(find_format("anthropic").export(mixed)))["messages"] == [
            assistant(THINKING, id="msg_1"),
            user(RESULT),
            assistant({**TEXT, **CACHED}, USE),
        ]


@pytest.mark.parametrize(
    ("document", "error", "message", "hint"),
    [
        (
            [{"role": "tool", "tool_call_id": "c", "content": "x"}],
            InvalidConversation,
            "f: message 0: unknown role 'tool' for format anthropic",
            "roles are user, assistant, system",
        ),
        (
            {"messages": [MESSAGES["text"], {"role": "model", "content": "x"}]},
            InvalidConversation,
            "f: message 1: unknown role 'model' for format anthropic",
            "roles are user, assistant, system",
        ),
        (
            [user(RESULT, {"type": "text", "text": "\x00"})],
            InvalidCard,
            "f: message 0: content[1].text: holds a NUL character at offset 0",
            "pass --on-bad-text replace, which writes U+FFFD instead",
        ),
        (
            {"system": [{"type": "text", "text": "\ud83d"}], "messages": []},
            InvalidCard,
            "f: system[0].text: holds a lone surrogate at offset 0",
            "pass --on-bad-text replace, which writes U+FFFD instead",
        ),
        ({"system": "x"}, InvalidConversation, "f: no messages found", "pass the messages' key: --at KEY; its keys are 'system'"),
    ],
)  # fmt: skip
def test_a_bad_message_stops_the_whole_import(
    import_text: ImportText, cards: CardStore, document: Any, error: type[Exception], message: str, hint: str
) -> None:
    with pytest.raises(error) as raised:
        import_text("anthropic", json.dumps(document))
    assert (str(raised.value), raised.value.hint) == (message, hint)
    assert list(cards.newest()) == []
