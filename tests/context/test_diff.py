"""Where two requests part, in the order of each provider's cache. Pure: cards are made here."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.context.composer import Layer
from cardbox_cli.context.diff import Difference, Extent, Piece, RequestDiff, diff
from cardbox_cli.context.explain import explain
from cardbox_cli.context.request import ComposeOptions, Request, RequestEntry, request_of
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import JsonContent, TextContent, ToolContent
from cardbox_cli.model.layers import LayerRequest, Layout
from cardbox_cli.providers.registry import provider_named
from tests.context.test_request import CALL, card

PROVIDERS = ("openai", "anthropic")
ANTHROPIC = provider_named("anthropic")


def request(provider: str, *cards: Card, tools: Sequence[str] = (), **llm_config: Any) -> Request:
    """The request of a profile with this `llm_config`, of tools by their names, and of cards."""
    said = {"name": "x", "system_prompt": "Be brief.", "llm_config": {"model": "m", **llm_config}}
    functions = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
    every = [
        card("sys.profile", JsonContent(said), "system", card_id="profile"),
        card("sys.tools", ToolContent(functions), "system", card_id="tools"),
        *cards,
    ]
    places = [Slot(place, each.card_id, each, "present") for place, each in enumerate(every)]
    return request_of(
        [RequestEntry(slot=slot, box_id="b") for slot in places], encode=provider_named(provider).encode
    )


def user(card_id: str, text: str | None = None) -> Card:
    return card("task.instruction", TextContent(text or card_id), card_id=card_id)


def answer(card_id: str) -> Card:
    return card("agent.thought", TextContent(card_id), "assistant", card_id=card_id)


CALLED = card("agent.thought", TextContent(""), "assistant", tool_calls=[CALL], card_id="called")
RESULT = card("tool.result", TextContent("ok"), "tool", tool_call_id="c", card_id="result")


def place(piece: Piece | None) -> tuple[str, int] | None:
    return None if piece is None else (piece.section, piece.number)


def sides(found: RequestDiff) -> tuple[Any, Any]:
    assert found.difference is not None
    return place(found.difference.a), place(found.difference.b)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("a", "b", "expected", "kept"),
    [
        # (cards, other cards), the pieces that differ, the messages that both begin with besides the prompt
        ([user("q")], [user("q"), answer("r")], (None, ("messages", 2)), 1),
        ([user("q"), answer("r")], [user("q")], (("messages", 2), None), 1),
        ([user("q"), answer("r")], [user("q"), answer("s")], (("messages", 2),) * 2, 1),
        ([user("p"), answer("r")], [user("q"), answer("r")], (("messages", 1),) * 2, 0),
    ],
)  # fmt: skip
def test_a_diff_starts_at_the_first_differing_message(
    provider: str, a: list[Card], b: list[Card], expected: Any, kept: int
) -> None:
    # OpenAI counts the system prompt among the messages, Anthropic keeps it apart.
    ahead = 1 if provider == "openai" else 0
    found = diff(request(provider, *a), request(provider, *b), provider_named(provider))
    assert sides(found) == tuple(None if each is None else (each[0], each[1] + ahead) for each in expected)
    assert found.kept.messages == kept + 1
    assert found.kept.messages + found.a_after.messages == len(a) + 1


@pytest.mark.parametrize(
    ("provider", "one", "other", "expected", "kept"),
    [
        ("openai", {}, {"model": "n"}, (("model", 1),) * 2, []),
        ("openai", {"tools": ["f", "g"]}, {"tools": ["f", "h"]}, (("tools", 2),) * 2, ["f"]),
        ("openai", {"tools": ["f"]}, {"tools": ["f", "h"]}, (None, ("tools", 2)), ["f"]),
        ("openai", {}, {"response_format": {"type": "json_object"}}, (("response_format", 1),) * 2, []),
        ("openai", {}, {"temperature": 1}, (None, ("temperature", 1)), ["prompt", "q"]),
        ("anthropic", {"tools": ["f"]}, {"tools": ["f"], "tool_choice": "required"}, (("tool_choice", 1),) * 2,
         ["f", "prompt"]),
        ("anthropic", {}, {"thinking": {"type": "enabled"}}, (("thinking", 1),) * 2, ["prompt"]),
        ("anthropic", {}, {"max_tokens": 9}, (("max_tokens", 1),) * 2, ["prompt", "q"]),
    ],
)  # fmt: skip
def test_a_change_before_the_messages_loses_all_cached_messages(
    provider: str, one: dict[str, Any], other: dict[str, Any], expected: Any, kept: list[str]
) -> None:
    a, b = (request(provider, user("q"), **keys) for keys in (one, other))
    found = diff(a, b, provider_named(provider))
    assert sides(found) == expected
    assert (found.kept.messages, found.kept.tokens > 0) == (len({"prompt", "q"} & {*kept}), bool(kept))


def test_a_longer_anthropic_message_keeps_its_cached_start() -> None:
    a, b = (request("anthropic", user("q"), *more) for more in ([], [user("also")]))
    found = diff(a, b, ANTHROPIC)
    assert found.difference == Difference(
        a=None,
        b=Piece(
            section="messages",
            number=1,
            role="user",
            layer="checkpoint_messages",
            card_ids=["also"],
            tokens=found.b_after.tokens,
            tokens_exact=False,
            text="also",
        ),
    )
    assert found.a_after == Extent(messages=0, tokens=0, tokens_exact=True)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_messages_with_equal_texts_differ_by_their_keys(provider: str) -> None:
    found = diff(
        request(provider, user("q"), user("r")),
        request(provider, user("q"), answer("r")),
        provider_named(provider),
    )
    assert found.difference is not None
    assert found.difference.a is not None
    assert found.difference.b is not None
    assert found.difference.a.text == found.difference.b.text
    assert [side.differing for side in (found.difference.a, found.difference.b)] == [
        {"role": "user"},
        {"role": "assistant"},
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_equal_requests_have_the_explained_token_count(provider: str) -> None:
    a = request(provider, user("q"), tools=["f"])
    assert diff(a, a, provider_named(provider)).kept.tokens == explain(a, ANTHROPIC).tokens


def test_results_are_compared_in_their_sent_order() -> None:
    cards = (user("q"), CALLED)
    a = request("anthropic", *cards, user("more"), RESULT)
    b = request("anthropic", *cards, RESULT, user("more"))
    assert diff(a, b, ANTHROPIC).equal
    found = diff(a, request("anthropic", *cards, RESULT, user("else")), ANTHROPIC)
    assert found.difference is not None
    assert found.difference.a is not None
    assert found.difference.a.card_ids == ["more"]


def test_cache_control_marks_are_not_a_difference() -> None:
    def marked(**mark: Any) -> Request:
        blocks = [{"type": "text", "text": "q", **mark}]
        metadata = {"source_format": "anthropic", "source_blocks": blocks}
        return request("anthropic", card("task.instruction", TextContent("q"), metadata=metadata))

    assert diff(marked(), marked(cache_control={"type": "ephemeral"}), ANTHROPIC).equal


SAID = st.lists(st.sampled_from([user("q"), answer("r"), CALLED, RESULT, user("s")]), max_size=6)


@given(SAID, SAID, st.sampled_from(PROVIDERS))
def test_a_diff_is_symmetric_and_complete(a: list[Card], b: list[Card], provider: str) -> None:
    one, other = request(provider, *a), request(provider, *b)
    there, back = diff(one, other, provider_named(provider)), diff(other, one, provider_named(provider))
    assert (there.kept, there.a_after, there.b_after) == (back.kept, back.b_after, back.a_after)
    assert there.equal == (provider_named(provider).body(one) == provider_named(provider).body(other))
    assert there.equal == (there.difference is None)
    assert diff(one, msgspec.structs.replace(one), provider_named(provider)).equal
    if provider == "openai":
        said, more = (provider_named(provider).body(each)["messages"] for each in (one, other))
        assert there.continues == (len(more) > len(said) and more[: len(said)] == said)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_request_with_more_messages_continues_the_shorter_one(provider: str) -> None:
    ahead = [user("q"), CALLED, RESULT]
    a, b = (
        request(provider, *ahead, temperature=1),
        request(provider, *ahead, answer("r"), user("s"), temperature=1),
    )
    found = diff(a, b, provider_named(provider))
    assert (found.equal, [piece.text for piece in found.new]) == (False, ["r", "s"])
    assert (len(found.new), found.a_after.messages) == (found.b_after.messages, 0)
    for one, other in (
        (b, a),
        (a, a),
        (a, request(provider, *ahead, answer("r"), temperature=2)),
        (a, request(provider, *ahead, answer("r"))),
        (a, request(provider, *ahead, answer("r"), temperature=1, tools=["f"])),
        (a, request(provider, user("o"), *ahead, temperature=1)),
    ):
        assert not diff(one, other, provider_named(provider)).continues


# --- layers that lived for the call

NOTES = "notes__context"
LAYOUTS: tuple[Layout, ...] = ("default", "cache")


def with_layer(
    provider: str,
    text: str,
    *,
    lost: bool,
    cards: Sequence[Card] = (),
    layer: str = NOTES,
    layout: Layout = "default",
) -> Request:
    """A request with a layer of this text, which is `lost` but for its hash, before or behind `cards`."""
    slots = [Slot(place, each.card_id, each, "present") for place, each in enumerate(cards or [user("q")])]
    entries = [RequestEntry(slot=slot, box_id="b") for slot in slots]
    options = ComposeOptions(layout=layout, asked=LayerRequest(texts={layer: text}))
    made = request_of(entries, options, encode=provider_named(provider).encode)
    if not lost:
        return made
    return msgspec.structs.replace(
        made,
        messages=[message for message in made.messages if message.layer != layer],
        layers=[],
        lost_layers={layer: Layer(name=layer, text=text).sha256},
    )


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layer", [NOTES, "knowledge__context"])
@given(one=st.sampled_from(["x", "y y"]), other=st.sampled_from(["x", "y y"]), knows_a=st.booleans())
def test_a_lost_layer_compares_like_a_stored_layer(
    provider: str, layout: Layout, layer: str, one: str, other: str, knows_a: bool
) -> None:
    options: dict[str, Any] = {"layer": layer, "layout": layout}
    a = with_layer(provider, one, lost=not knows_a, **options)
    b = with_layer(provider, other, lost=knows_a, **options)
    whole = diff(
        *(with_layer(provider, text, lost=False, **options) for text in (one, other)),
        provider_named(provider),
    )
    found = diff(a, b, provider_named(provider))
    assert found.equal is (one == other)
    assert sides(found) == sides(whole) if found.difference else found == whole
    assert found.kept.messages == whole.kept.messages
    assert found.a_after.messages == whole.a_after.messages
    assert found.b_after.messages == whole.b_after.messages


@pytest.mark.parametrize("provider", PROVIDERS)
def test_lost_layers_with_equal_hashes_are_equal_but_uncounted(provider: str) -> None:
    cards = [user("q")], [user("q"), answer("r")]
    a, b = (with_layer(provider, "Notes.", lost=True, cards=each) for each in cards)
    bare = diff(*(msgspec.structs.replace(each, lost_layers={}) for each in (a, b)), provider_named(provider))
    found = diff(a, b, provider_named(provider))
    assert sides(found)[0] is None
    assert (found.kept.messages, found.kept.uncounted) == (bare.kept.messages + 1, 1)
    assert (found.kept.tokens, found.kept.tokens_exact) == (bare.kept.tokens, False)
    assert (found.a_after, found.b_after) == (bare.a_after, bare.b_after)
    assert (found.a_lost, found.b_lost) == ([NOTES], [NOTES])
    same = diff(a, a, provider_named(provider))
    assert (same.equal, same.kept.uncounted, same.kept.messages) == (True, 1, 2)
    assert same.kept.tokens == explain(a, ANTHROPIC).tokens


@pytest.mark.parametrize("provider", PROVIDERS)
def test_lost_layers_with_different_hashes_differ_at_the_layer(provider: str) -> None:
    found = diff(
        *(with_layer(provider, text, lost=True) for text in ("One.", "Two.")), provider_named(provider)
    )
    assert found.difference is not None
    for side, text in ((found.difference.a, "One."), (found.difference.b, "Two.")):
        assert side is not None
        assert (side.layer, side.text, side.differing, side.tokens) == (NOTES, "", None, 0)
        assert side.sha256 == Layer(name=NOTES, text=text).sha256
    assert (found.kept.messages, found.a_after.messages, found.b_after.messages) == (0, 2, 2)
    assert found.a_after.uncounted == found.b_after.uncounted == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_text_that_quotes_the_hash_is_not_the_lost_layer(provider: str) -> None:
    lost = with_layer(provider, "Notes.", lost=True)
    liar = with_layer(provider, lost.lost_layers[NOTES], lost=False)
    assert not diff(lost, liar, provider_named(provider)).equal


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_lost_layer_differs_from_a_missing_one(provider: str) -> None:
    one = with_layer(provider, "Notes.", lost=True)
    bare = msgspec.structs.replace(one, lost_layers={})
    found = diff(one, bare, provider_named(provider))
    assert found.difference is not None
    assert found.difference.a is not None
    assert (found.difference.a.layer, found.kept.messages, found.a_after.messages) == (NOTES, 0, 2)
