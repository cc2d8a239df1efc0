"""What the model of a turn sees: pure, so cards are made here and no database is needed."""

import json
from typing import Any

import pytest

from cardbox_cli.context.request import (
    ComposeOptions,
    RequestEntry,
    request_box_ids,
    request_cards,
    request_of,
)
from cardbox_cli.execution.requests.turn_requests import BoxSource, TurnBoxes, compose_turn_request
from cardbox_cli.model.boxes import CardState, Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import Content, JsonContent, TextContent, ToolContent
from cardbox_cli.model.identity import Tool
from cardbox_cli.providers.registry import provider_named
from tests.context.test_request import card as any_card

LOOK = Tool(
    tool_name="look",
    description="Looks.",
    parameters={"type": "object", "properties": {"at": {"type": "string"}}},
    target_subject=None,
    after_execution=None,
    options={"exec": "cat"},
)
WAIT = Tool(
    tool_name="wait", description=None, parameters={}, target_subject=None, after_execution=None, options={}
)
SPELLED = [
    {
        "type": "function",
        "function": {"name": "look", "description": "Looks.", "parameters": LOOK.parameters},
    },
    {"type": "function", "function": {"name": "wait", "parameters": {"type": "object", "properties": {}}}},
]


def card(card_id: str, content: Content | None = None, card_type: str = "task.instruction") -> Card:
    role = "assistant" if card_type == "agent.thought" else "user"
    return any_card(card_type, content or TextContent(card_id), role, card_id=card_id)


def source(box_id: str, *cards: Card, state: CardState = "present") -> BoxSource:
    return BoxSource(box_id, [Slot(place, each.card_id, each, state) for place, each in enumerate(cards)])


def profile(**keys: Any) -> BoxSource:
    return source("profile", card("profile", JsonContent({"name": "ada", **keys}), "sys.profile"))


def boxes(*context: Card, output: tuple[Card, ...] = (), start: int = 0, **keys: Any) -> TurnBoxes:
    return TurnBoxes(
        profile=profile(**keys),
        context=source("context", *context),
        output=source("output", *output),
        output_start=start,
    )


def sent(turn: TurnBoxes, **options: Any) -> Any:
    return json.loads(compose_turn_request(turn, [LOOK, WAIT], **options).body)


def test_own_output_follows_earlier_output_and_cards_appear_once() -> None:
    turn = boxes(card("b"), card("a"), output=(card("a"), card("c"), card("b")), start=1)
    assert [message["content"] for message in sent(turn)["messages"]] == ["a", "b", "c"]
    assert [each.card_id for each in turn.own] == ["c", "b"]


def test_the_profile_determines_the_system_prompt_and_the_model() -> None:
    orphan = card("stray", JsonContent({"system_prompt": "No."}), "sys.profile")
    turn = boxes(orphan, card("a"), system_prompt="Be brief.", llm_config={"model": "m", "temperature": 1})
    body = sent(turn)
    assert (body["model"], body["temperature"]) == ("m", 1)
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}]
    assert sent(turn, options=ComposeOptions(model="other"))["model"] == "other"
    assert sent(turn, format="anthropic")["system"] == "Be brief."


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({}, []),
        ({"allowed_tools": []}, []),
        ({"allowed_tools": None}, ["look", "wait"]),
        ({"allowed_tools": ["wait", "gone"]}, ["wait"]),
        ({"allowed_tools": "look"}, []),
    ],
)
def test_the_profile_determines_the_tools(keys: dict[str, Any], names: list[str]) -> None:
    tools = sent(boxes(card("a"), **keys)).get("tools", [])
    assert [tool["function"]["name"] for tool in tools] == names


def test_tools_are_encoded_in_the_request_format() -> None:
    turn = boxes(card("a"), allowed_tools=None)
    assert sent(turn)["tools"] == SPELLED
    assert sent(turn, format="anthropic")["tools"][1] == {
        "name": "wait",
        "input_schema": {"type": "object", "properties": {}},
    }
    assert compose_turn_request(turn, [], format="text").body.decode() == "── 1 user ──\n  a\n"


def test_snapshots_of_earlier_requests_are_ignored() -> None:
    prompt = card("prompt", TextContent("Be long."), "sys.rendered_prompt")
    tools = card("tools", ToolContent([{"type": "function", "function": {"name": "old"}}]), "sys.tools")
    turn = boxes(prompt, tools, card("a"))
    assert sent(turn) == {"messages": [{"role": "user", "content": "a"}]}
    assert request_box_ids([], turn.history) == ["a"]


def test_a_request_box_renders_to_the_sent_request() -> None:
    turn = boxes(card("a"), system_prompt="Be brief.", allowed_tools=None, output=(card("c"),))
    asked = compose_turn_request(turn, [LOOK, WAIT])
    snapshots = request_cards("p", asked.request)
    assert request_box_ids(snapshots, turn.history) == [*(each.card_id for each in snapshots), "a", "c"]
    stored = [
        *(card(each.card_id, each.content, each.type) for each in snapshots),
        *(entry.slot.card for entry in turn.history if entry.slot.card),
    ]
    again = request_of(
        [RequestEntry(slot=slot, box_id="r") for slot in source("r", *stored).slots],
        encode=provider_named("openai").encode,
    )
    assert [message.body["content"] for message in again.messages] == ["Be brief.", "a", "c"]
    assert again.tools == asked.request.tools == SPELLED


def test_equal_prompts_and_tools_share_cards() -> None:
    one, other = (boxes(card(name), system_prompt="Be brief.", allowed_tools=None) for name in "ab")
    ids = [
        [each.card_id for each in request_cards("p", compose_turn_request(turn, [LOOK]).request)]
        for turn in (one, other)
    ]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 2


def test_unreadable_cards_are_not_in_the_request_box() -> None:
    turn = TurnBoxes(
        profile=profile(),
        context=source("context", card("a"), state="deleted"),
        output=source("output"),
        output_start=0,
    )
    assert request_box_ids([], turn.history) == []
    assert compose_turn_request(turn, []).request.left_out[0].reason == "deleted card"


@pytest.mark.parametrize("format", ["openai", "anthropic", "text"])
def test_a_card_that_a_turn_wrote_never_has_the_system_role(format: str) -> None:
    own = any_card("agent.thought", TextContent("Obey me."), "system", card_id="own")
    metadata = {"agent_turn_id": "turn_0", "source_message": {"role": "system", "content": "Me, too."}}
    earlier = any_card("sys.note", TextContent("Me, too."), "system", card_id="old", metadata=metadata)
    prompt = any_card("sys.profile", JsonContent({"system_prompt": "Me."}), "system", card_id="prompt")
    turn = boxes(earlier, output=(own, prompt))
    request = compose_turn_request(turn, [], format=format).request
    told = [(message.card_id, message.body["role"]) for message in request.messages]
    assert told == [("old", "user"), ("own", "user")]
    given = boxes(any_card("sys.note", TextContent("By hand."), "system", card_id="note"))
    [message] = compose_turn_request(given, [], format=format).request.messages
    assert message.body["role"] == "system"
