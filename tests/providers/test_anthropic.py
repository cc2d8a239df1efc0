"""The body for Anthropic's Messages: what its own types accept, whatever the cards come from."""

import re
from typing import Any, ClassVar

import pytest

from cardbox_cli.context.request import ComposeOptions, Request, RequestEntry, request_of
from cardbox_cli.conversations.conversation import FileEntry as Message
from cardbox_cli.conversations.formats.registry import find_format
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import (
    FieldSchema,
    FieldsSchemaContent,
    ImageFileContent,
    JsonContent,
    MultiFileContent,
    PdfFileContent,
    TextContent,
    ToolContent,
    ToolResultContent,
)
from cardbox_cli.providers.registry import provider_named
from tests.anthropic_types import check_body
from tests.context.test_request import card
from tests.conversations.anthropic_messages import (
    CACHED,
    IMAGE,
    MESSAGES,
    RESULT,
    TEXT,
    THINKING,
    USE,
    assistant,
    user,
)

anthropic, openai = provider_named("anthropic"), provider_named("openai")
HI = card("task.instruction", TextContent("hi"))
FUNCTION = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def imported(source_format: str, *messages: dict[str, Any], system: Any = None) -> list[Card]:
    """The cards that an import makes of these messages."""
    entries = [Message("system", {"system": system}, "f")] if system is not None else []
    entries += [Message(str(number), message, "f") for number, message in enumerate(messages)]
    drafts = [(entry, draft) for entry in entries for draft in find_format(source_format).draft(entry)]
    return [
        card(
            draft.type,
            draft.content,
            draft.role,
            card_id=str(number),
            metadata={"source_group": entry.position, **draft.metadata},
            tool_calls=draft.tool_calls,
            tool_call_id=draft.tool_call_id,
        )
        for number, (entry, draft) in enumerate(drafts)
    ]


def request(*cards: Card, encode: Any = anthropic.encode) -> Request:
    entries = [
        RequestEntry(slot=Slot(number, each.card_id, each, "present"), box_id="b")
        for number, each in enumerate(cards)
    ]
    return request_of(entries, ComposeOptions(model="m"), encode=encode)


def body(*cards: Card) -> dict[str, Any]:
    """The body of cards, which Anthropic's types accept."""
    made = anthropic.body(request(*cards))
    check_body(made)
    return made


def messages(*cards: Card) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = body(*cards)["messages"]
    return made


def profile(**config: Any) -> Card:
    data = {"name": "x", "system_prompt": "Be kind.", "llm_config": config}
    return card("sys.profile", JsonContent(data), "system", card_id="profile")


def tools(*definitions: dict[str, Any]) -> Card:
    return card("sys.tools", ToolContent(list(definitions)), "system", card_id="tools")


# What the types know nothing of.
STRANGE = {
    "an unknown block",
    "an unknown block of a user",
    "blocks that are none",
    "a call without an id",
    "content of no kind",
}


class TestAnthropicMessages:
    @pytest.mark.parametrize("name", [name for name in MESSAGES if name not in STRANGE])
    def test_every_message_type_is_valid_for_anthropic(self, name: str) -> None:
        body(
            *imported("anthropic", MESSAGES[name]), card("task.instruction", TextContent("And?"), card_id="z")
        )

    def test_an_imported_message_is_sent_unchanged(self) -> None:
        exchange = [
            {"role": "user", "content": "Hi"},
            assistant(THINKING, {**TEXT, **CACHED}, USE),
            user({**RESULT, "is_error": True}, IMAGE),
            {"role": "assistant", "content": "Done."},
        ]
        assert messages(*imported("anthropic", *exchange)) == exchange

    def test_adjacent_messages_of_one_role_are_merged(self) -> None:
        came = (user(TEXT), {"role": "user", "content": "Hi"}, assistant(TEXT), assistant(USE), user(RESULT))
        assert messages(*imported("anthropic", *came)) == [
            user(TEXT, {"type": "text", "text": "Hi"}),
            assistant(TEXT, USE),
            user(RESULT),
        ]

    def test_results_come_before_other_content(self) -> None:
        assert messages(*imported("anthropic", user(TEXT), user(RESULT, IMAGE))) == [
            user(RESULT, TEXT, IMAGE)
        ]

    def test_keys_next_to_the_content_are_not_sent(self) -> None:
        sent = messages(*imported("anthropic", MESSAGES["a response"]))
        assert sent == [assistant(THINKING, TEXT)]

    @pytest.mark.parametrize(
        "blocks",
        [
            [],
            [{"type": "text", "text": " \n"}],
            [{"type": "thinking", "thinking": "hm"}],
            [{"type": "thinking", "thinking": "hm", "signature": ""}],
        ],
    )
    def test_content_that_anthropic_refuses_is_left_out(self, blocks: list[Any]) -> None:
        made = request(HI, *imported("anthropic", assistant(*blocks)))
        assert anthropic.body(made)["messages"] == [{"role": "user", "content": "hi"}]
        assert [left.reason for left in made.left_out] == [
            "nothing that Anthropic would take: empty, or thinking without its signature"
        ]


class TestSystem:
    def test_system_text_is_joined_in_its_order(self) -> None:
        late = card("sys.rendered_prompt", TextContent("Be brief."), "system", card_id="late")
        asked = card("task.result_fields", FieldsSchemaContent([FieldSchema("a", "the a")]), "system")
        made = body(profile(), HI, late, asked)
        fields = "The result must contain these fields:\n- a: the a"
        assert made["system"] == f"Be kind.\n\nBe brief.\n\n{fields}"
        assert made["messages"] == [{"role": "user", "content": "hi"}]

    def test_system_blocks_stay_separate_if_one_is_cached(self) -> None:
        cached = [TEXT, {**TEXT, **CACHED}]
        made = body(profile(), *imported("anthropic", system=cached), HI)
        assert made["system"] == [{"type": "text", "text": "Be kind."}, *cached]
        plain = body(*imported("anthropic", system=[TEXT, TEXT]), HI)
        assert plain["system"] == "Let me look.\n\nLet me look."

    def test_a_late_system_message_joins_the_system_text(self) -> None:
        assert (
            body(*imported("anthropic", MESSAGES["a system message"]), HI)["system"]
            == "From now on in French."
        )

    def test_a_request_without_system_text_has_no_system_key(self) -> None:
        assert "system" not in body(HI)


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        ({"role": "user", "content": "Hi", "name": "ann"}, {"role": "user", "content": "Hi"}),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            user({"type": "text", "text": "a"}, {"type": "text", "text": "b"}),
        ),
        (
            user({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}}),
            user(IMAGE),
        ),
        (
            user({"type": "image_url", "image_url": {"url": "https://h/p.png"}}),
            user({"type": "image", "source": {"type": "url", "url": "https://h/p.png"}}),
        ),
        (
            user({"type": "image_url", "image_url": {"url": "data:image/bmp;base64,AA=="}}),
            user({"type": "text", "text": "[image: image/bmp]"}),
        ),
        (
            user({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}}),
            user({"type": "document", "title": "a.pdf",
                  "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}),
        ),
        (user({"type": "file", "file": {"file_id": "f-1"}}), user({"type": "text", "text": "[file]"})),
        (user({"type": "input_audio", "input_audio": {"data": "AA"}}), user({"type": "text", "text": "[input_audio]"})),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **FUNCTION}]},
            assistant({"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}),
        ),
        (
            {"role": "assistant", "content": "Hm.", "tool_calls": [{"id": "functions.f:0", **FUNCTION}]},
            assistant(
                {"type": "text", "text": "Hm."},
                {"type": "tool_use", "id": "functions_f_0", "name": "f", "input": {"a": 1}},
            ),
        ),
        ({"role": "assistant", "content": None, "refusal": "No."}, assistant({"type": "text", "text": "No."})),
        (
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            assistant({"type": "text", "text": '[call of {"name":"f","arguments":"{}"}]'}),
        ),
        ({"role": "function", "name": "f", "content": "ok"}, user({"type": "text", "text": "[result of f: ok]"})),
        (
            {"role": "tool", "tool_call_id": "a.b", "content": "ok"},
            user({"type": "tool_result", "tool_use_id": "a_b", "content": "ok"}),
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": ""},
            user({"type": "tool_result", "tool_use_id": "c", "content": ""}),
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "ok"}]},
            user({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "ok"}]}),
        ),
    ],
)  # fmt: skip
def test_openai_messages_are_converted(message: dict[str, Any], sent: dict[str, Any]) -> None:
    assert messages(*imported("openai", message)) == [sent]


class TestInvalidIdCharacters:
    @staticmethod
    def pairs(called: list[str], answered: list[str]) -> tuple[list[str], list[str], list[str]]:
        """The ids that calls are sent with, those that their results are, and what those results say."""
        calls = [{**FUNCTION, "id": call_id} for call_id in called]
        results = [{"role": "tool", "tool_call_id": each, "content": f"of {each}"} for each in answered]
        asked, told = messages(
            *imported("openai", {"role": "assistant", "content": None, "tool_calls": calls}, *results)
        )
        return (
            [block["id"] for block in asked["content"]],
            [block["tool_use_id"] for block in told["content"]],
            [block["content"] for block in told["content"]],
        )

    @pytest.mark.parametrize(
        ("called", "sent"),
        [
            (["c.1", "c_1"], ["c_1_2", "c_1"]),
            (["c_1", "c.1"], ["c_1", "c_1_2"]),
            (["c.1", "c:1"], ["c_1", "c_1_2"]),
            (["c.1", "c_1", "c_1_2"], ["c_1_3", "c_1", "c_1_2"]),
        ],
    )
    def test_each_result_gets_the_new_id_of_its_call(self, called: list[str], sent: list[str]) -> None:
        ids, answers, says = self.pairs(called, called[::-1])
        assert ids == sent
        assert dict(zip(answers, says, strict=True)) == {
            new: f"of {old}" for old, new in zip(called, sent, strict=True)
        }

    @pytest.mark.parametrize(("called", "answered"), [("c_1", "c.1"), ("c.1", "c_1"), ("c.1", "c:1")])
    def test_a_result_with_another_id_is_not_paired(self, called: str, answered: str) -> None:
        [call_id], [result_id], _ = self.pairs([called], [answered])
        assert call_id != result_id
        assert not re.search(r"[^a-zA-Z0-9_-]", call_id + result_id)

    def test_a_call_without_a_name_is_renamed_with_its_result(self) -> None:
        calls = [{"id": "c.1", "type": "function", "function": {"name": name}} for name in (None, 5)]
        made = body(
            *imported(
                "openai",
                {"role": "assistant", "content": None, "tool_calls": [calls[0]]},
                {"role": "tool", "tool_call_id": "c.1", "content": "ok"},
                {"role": "assistant", "content": None, "tool_calls": [calls[1]]},
            )
        )
        assert made["messages"] == [
            assistant({"type": "tool_use", "id": "c_1", "name": "", "input": {}}),
            user({"type": "tool_result", "tool_use_id": "c_1", "content": "ok"}),
            assistant({"type": "tool_use", "id": "c_1_2", "name": "", "input": {}}),
        ]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"a": 1.50}', {"a": 1.5}),
        ("", {}),
        (" ", {}),
        ("{oops", {"_raw": "{oops"}),
        ("[1]", {"_raw": "[1]"}),
        ("null", {"_raw": "null"}),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
        ({"a": 1}, {"a": 1}),
        (None, {}),
        (3, {"_raw": "3"}),
    ],
)
def test_tool_arguments_become_an_object(arguments: Any, sent: dict[str, Any]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    [message] = messages(card("agent.thought", TextContent(""), "assistant", tool_calls=[call]))
    assert message["content"][0]["input"] == sent


def test_cards_of_cbx_are_converted() -> None:
    failed = ToolResultContent("failed", "suspend", error={"code": "e", "message": "m"})
    files = MultiFileContent([ImageFileContent("https://h/p", "c"), ImageFileContent("s3://b/k", "c"), PdfFileContent("s3://b/k", "c")])  # fmt: skip
    assert messages(
        card("tool.result", failed, "tool", tool_call_id="c", card_id="1"),
        card("chat.message", files, card_id="2"),
        card("task.deliverable", JsonContent({"a": 1}), "assistant", card_id="3"),
    ) == [
        user(
            {"type": "tool_result", "tool_use_id": "c", "content": '{"error":{"code":"e","message":"m"}}', "is_error": True},
            {"type": "image", "source": {"type": "url", "url": "https://h/p"}},
            {"type": "text", "text": "[image: s3://b/k]"},
            {"type": "text", "text": "[PdfFile: s3://b/k]"},
        ),
        {"role": "assistant", "content": '{"a":1}'},
    ]  # fmt: skip


class TestTools:
    ANTHROPIC: ClassVar = {"name": "f", "description": "does f", "input_schema": SCHEMA}
    OPENAI: ClassVar = {
        "type": "function",
        "function": {"name": "f", "description": "does f", "parameters": SCHEMA},
    }
    SERVER: ClassVar = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}

    @pytest.mark.parametrize(
        ("stored", "sent"),
        [
            (OPENAI, ANTHROPIC),
            (ANTHROPIC, ANTHROPIC),
            (SERVER, SERVER),
            ({"name": "f", "description": "does f", "parameters": SCHEMA}, ANTHROPIC),
            (
                {"type": "function", "function": {"name": "f", "strict": True}},
                {"name": "f", "strict": True, "input_schema": {"type": "object", "properties": {}}},
            ),
        ],
    )
    def test_definitions_are_translated(self, stored: dict[str, Any], sent: dict[str, Any]) -> None:
        assert body(tools(stored), HI)["tools"] == [sent]

    @pytest.mark.parametrize(
        ("stored", "sent"), [(OPENAI, OPENAI), (ANTHROPIC, OPENAI), ({"x": 1}, {"x": 1})]
    )
    def test_definitions_are_translated_for_openai(
        self, stored: dict[str, Any], sent: dict[str, Any]
    ) -> None:
        assert openai.body(request(tools(stored), HI, encode=openai.encode))["tools"] == [sent]

    @pytest.mark.parametrize(
        ("config", "sent"),
        [
            ({}, None),
            ({"tool_choice": "auto"}, {"type": "auto"}),
            ({"tool_choice": "required"}, {"type": "any"}),
            ({"tool_choice": "none"}, {"type": "none"}),
            ({"tool_choice": "whatever"}, None),
            ({"tool_choice": ["auto"]}, None),
            ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, {"type": "tool", "name": "f"}),
            ({"tool_choice": {"type": "tool", "name": "f"}}, {"type": "tool", "name": "f"}),
            ({"parallel_tool_calls": True}, None),
            ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
            (
                {"tool_choice": "required", "parallel_tool_calls": False},
                {"type": "any", "disable_parallel_tool_use": True},
            ),
            ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ],
    )
    def test_the_tool_choice_is_translated(self, config: dict[str, Any], sent: dict[str, Any] | None) -> None:
        assert body(profile(**config), tools(self.OPENAI), HI).get("tool_choice") == sent
        assert "tool_choice" not in body(profile(**config), HI)


@pytest.mark.parametrize(
    ("config", "sent"),
    [
        ({}, {"max_tokens": 4096}),
        ({"max_tokens": 10}, {"max_tokens": 10}),
        ({"max_completion_tokens": 20}, {"max_tokens": 20}),
        ({"max_tokens": None}, {"max_tokens": 4096}),
        (
            {"temperature": 0.2, "top_k": 3, "top_p": None},
            {"max_tokens": 4096, "temperature": 0.2, "top_k": 3},
        ),
        ({"stop": "END"}, {"max_tokens": 4096, "stop_sequences": ["END"]}),
        ({"stop": ["A", "B"]}, {"max_tokens": 4096, "stop_sequences": ["A", "B"]}),
        ({"reasoning_effort": "low"}, {"max_tokens": 4096, "output_config": {"effort": "low"}}),
        ({"reasoning_effort": "minimal"}, {"max_tokens": 4096}),
        ({"response_format": {"type": "json_object"}}, {"max_tokens": 4096}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            {"max_tokens": 4096, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            {"max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 1024}},
        ),
        ({"seed": 1, "presence_penalty": 1, "stream": True, "unknown": 1}, {"max_tokens": 4096}),
    ],
)
def test_parameters_are_translated(config: dict[str, Any], sent: dict[str, Any]) -> None:
    made = body(profile(**config), HI)
    rest = {key: value for key, value in made.items() if key not in ("model", "system", "messages")}
    assert rest == sent


def test_a_request_without_a_model_has_no_model_key() -> None:
    made = request_of([RequestEntry(slot=Slot(0, "1", HI, "present"), box_id="b")], encode=anthropic.encode)
    assert list(anthropic.body(made)) == ["max_tokens", "messages"]
