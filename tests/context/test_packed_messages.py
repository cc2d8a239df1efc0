"""Histories that are held packed: what comes out is what went in, and makes the same requests."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.context.losses import is_looked_at, losses
from cardbox_cli.context.messages import PACK_SIZE, Message, PackedMessages
from cardbox_cli.context.request import ComposeOptions, RequestEntry, request_of, request_to_send
from cardbox_cli.errors import DuplicateQuery
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import ImageFileContent
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.providers.formats import body_of, encoder_of, format_names, text
from cardbox_cli.providers.registry import PROVIDERS, provider_named
from tests import jsonb_values
from tests.context.lint.cards import (
    blocks,
    call,
    message,
    placed,
    places,
    profile,
    result,
    system,
    thinking,
    thought,
    tools,
    user,
)
from tests.context.test_request import card

LAYER = Message("todo__context", {"role": "system", "content": "Todo list:"})


def packed(*messages: Message) -> PackedMessages:
    made = PackedMessages()
    for each in messages:
        made.add(each)
    return made


def numbered(count: int) -> list[Message]:
    return [
        Message(CHECKPOINT, {"role": "user", "content": f"{number}"}, f"k{number}") for number in range(count)
    ]


@given(st.lists(jsonb_values.objects, max_size=3), st.lists(st.none() | st.text("ab", max_size=2)))
@settings(max_examples=50, deadline=None)
def test_packed_messages_are_restored_unchanged(
    bodies: list[dict[str, Any]], groups: list[str | None]
) -> None:
    stored = exact_json.decode(exact_json.encode(bodies))
    messages = [
        Message(CHECKPOINT, body, f"k{place}", group)
        for place, (body, group) in enumerate(zip(stored, groups, strict=False))
    ]
    # The first ones are packed for sure.
    found = list(packed(*messages, *numbered(PACK_SIZE + 1)))[: len(messages)]
    assert [exact_json.encode(each.body) for each in found] == [
        exact_json.encode(each.body) for each in messages
    ]
    assert [(each.layer, each.card_id, each.group) for each in found] == [
        (each.layer, each.card_id, each.group) for each in messages
    ]


@pytest.mark.parametrize("count", [0, 1, PACK_SIZE, PACK_SIZE + 1, 2 * PACK_SIZE + 7])
def test_packed_messages_behave_like_a_sequence(count: int) -> None:
    around = packed(*numbered(count)).surround([LAYER], [LAYER, LAYER])
    wanted = [LAYER, *numbered(count), LAYER, LAYER]
    assert (len(around), list(around)) == (len(wanted), wanted)
    assert [around[place] for place in range(len(wanted))] == wanted
    assert [around[place] for place in range(-len(wanted), 0)] == wanted
    assert around[1:-1] == wanted[1:-1]
    with pytest.raises(IndexError):
        around[len(wanted)]


IMAGE = card("chat.message", ImageFileContent("https://x.y/z.png", "c"), "user")
BY_A_TURN = {"agent_turn_id": "turn_1"}
EVERYTHING: list[Card | RequestEntry] = [
    profile(temperature=1, top_k=3, toolConfig={"a": 1}, tool_choice="auto"),
    tools("f", "g"),
    system("Late."),
    system("so far", "context.compression"),
    user("hi"),
    placed(user("gone"), state="deleted"),
    thought(call("a b"), call("c"), metadata={"source_group": "1"}),
    thought(call("c"), text="More.", metadata={"source_group": "1"}),
    result("a b"),
    placed(result("c"), rule="inherit"),
    system("from a turn", metadata=BY_A_TURN),
    system("made up", "context.compression", metadata=BY_A_TURN),
    thinking("hm"),
    blocks({"type": "text", "text": "x"}, {"type": "search_result", "content": []}),
    message(
        {"role": "user", "content": [{"type": "text", "text": "1.10", "detail": 1.5}]}, "chat.message", "user"
    ),
    IMAGE,
    user("and?"),
]


@pytest.mark.parametrize("process", ["react", "sequential"])
@pytest.mark.parametrize("format", format_names())
def test_a_streamed_request_equals_one_with_all_cards_in_memory(format: str, process: Any) -> None:
    entries = places(*EVERYTHING, *[user(str(number)) for number in range(PACK_SIZE)], *EVERYTHING[4:])
    options = ComposeOptions(model="claude-opus-4-8", process=process, query="Go on.")
    held = request_of(entries, options, encode=encoder_of(format))
    read_once = iter([*entries, entries[4]])
    made = request_to_send(read_once, options, encode=encoder_of(format), keep=is_looked_at)
    assert exact_json.encode(body_of(made, format)) == exact_json.encode(body_of(held, format))
    assert text(made) == text(held)
    if format in PROVIDERS:
        assert losses(made, provider_named(format)) == losses(held, provider_named(format))
        renamed = provider_named(format).renamed_calls
        assert renamed(made.messages) == renamed(held.messages)
    assert (made.tools, made.layers, made.config) == (held.tools, held.layers, held.config)
    assert len(made.places) < len(held.places) / 10


def test_a_packed_history_still_refuses_a_duplicate_query() -> None:
    entries = places(*[user(str(number)) for number in range(PACK_SIZE + 1)])
    with pytest.raises(DuplicateQuery):
        request_to_send(
            entries, ComposeOptions(query=str(PACK_SIZE)), encode=encoder_of("openai"), keep=is_looked_at
        )
