"""Planning a context, without a database: the rules one by one, and what the limits of a recipe leave out."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.errors import BadRequest
from cardbox_cli.model.boxes import Provenance, ProvenanceRule
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import FieldsSchemaContent, JsonContent, StoredContent, TextContent
from cardbox_cli.model.handwritten.recipes import InheritContext, Recipe
from cardbox_cli.packing.plan import (
    ExcludedCard,
    InheritedBox,
    PackPlan,
    PlannedCard,
    apply_limits,
    argument_cards,
    build_plan,
    card_tokens,
    has_limits,
    inheritable_card,
    inherited_boxes,
    inherited_cards,
    parent_card,
    target_profile_name,
)
from cardbox_cli.packing.recipe_files import recipe_from_mapping

BOX_A = "0190aaaa-0000-7000-8000-00000000000a"
BOX_B = "0190bbbb-0000-7000-8000-00000000000b"


def recipe(**packing: Any) -> Recipe:
    """A recipe with this `context_packing_config`."""
    return recipe_from_mapping({"context_packing_config": packing})


def inheriting(*arg_keys: str, allowed: list[str] | None = None) -> Recipe:
    """A recipe that inherits the boxes of these arguments."""
    packing = {"inherit_context": {"include_boxes_from_args": list(arg_keys)}}
    limits = {} if allowed is None else {"authorized_inherit_box_ids": allowed}
    return recipe_from_mapping({"context_packing_config": packing, **limits})


def card(card_id: str, card_type: str = "chat.message", **parts: Any) -> Card:
    values: dict[str, Any] = {
        "card_id": card_id,
        "project_id": "p",
        "type": card_type,
        "role": "user",
        "author_id": None,
        "content": TextContent("four"),
        "tool_calls": None,
        "tool_call_id": None,
        "ttl_seconds": None,
        "metadata": {"type": card_type},
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "expires_at": None,
        "deleted_at": None,
    }
    return Card(**{**values, **parts})


def thought(card_id: str, *call_ids: str) -> Card:
    return card(card_id, "agent.thought", tool_calls=[{"id": call_id} for call_id in call_ids])


def scheduled(card_id: str, call_id: str) -> Card:
    return card(card_id, "tool.call", tool_call_id=call_id)


def result(card_id: str, call_id: str) -> Card:
    return card(card_id, "tool.result", tool_call_id=call_id)


def places(card_ids: Sequence[str], rule: str = "r") -> list[PlannedCard]:
    return [PlannedCard(card_id=card_id, rule=rule) for card_id in card_ids]


def ids(planned: Sequence[PlannedCard | ExcludedCard]) -> list[str]:
    return [place.card_id for place in planned]


# Rule 1: the target profile.


@pytest.mark.parametrize(
    ("configured", "arguments", "name"),
    [
        pytest.param("writer", {}, "writer", id="the recipe's"),
        pytest.param(None, {"profile_name": "coder"}, "coder", id="the argument alone"),
        pytest.param("writer", {"profile_name": "coder"}, "coder", id="the argument over the recipe's"),
        pytest.param(None, {"profile_name": "\t coder \n"}, "coder", id="argument trimmed"),
        pytest.param("  writer ", {}, "writer", id="recipe's trimmed"),
        pytest.param("writer", {"profile_name": ""}, "writer", id="an empty argument counts as absent"),
        pytest.param("writer", {"profile_name": " \n"}, "writer", id="a blank argument counts as absent"),
        pytest.param(None, {"profile_name": "two words"}, "two words", id="space inside is kept"),
    ],
)
def test_the_profile_argument_overrides_the_recipe(
    configured: str | None, arguments: dict[str, Any], name: str
) -> None:
    target = {} if configured is None else {"target_profile_config": {"profile_name": configured}}
    loaded = recipe_from_mapping({"context_packing_config": {}, **target})
    assert target_profile_name(loaded, arguments) == name


def test_a_blank_profile_without_one_in_the_recipe_is_missing() -> None:
    with pytest.raises(BadRequest, match="profile_name is missing"):
        target_profile_name(recipe_from_mapping({"context_packing_config": {}}), {"profile_name": " "})


def test_an_empty_profile_argument_does_not_fall_back_to_the_recipe() -> None:
    loaded = recipe_from_mapping(
        {"target_profile_config": {"profile_name": "writer"}, "context_packing_config": {}}
    )
    with pytest.raises(BadRequest) as caught:
        target_profile_name(loaded, {"profile_name": None})
    assert caught.value.message == "argument 'profile_name' must be a string, not null"


# Rule 2: cards of arguments.


def test_each_given_argument_becomes_a_card_in_rule_order() -> None:
    loaded = recipe(pack_arguments=[{"arg_key": "b"}, {"arg_key": "absent"}, {"arg_key": "a"}])
    planned = argument_cards(loaded, {"a": "first", "b": "second", "unused": 1}, tool_suffix="t")
    assert [(place.rule, place.draft and place.draft.content) for place in planned] == [
        ("pack_arguments[0] b", TextContent("second")),
        ("pack_arguments[2] a", TextContent("first")),
    ]


def test_an_argument_can_be_packed_by_two_rules() -> None:
    loaded = recipe(pack_arguments=[{"arg_key": "a"}, {"arg_key": "a", "as_card_type": "chat.message"}])
    planned = argument_cards(loaded, {"a": "x"}, tool_suffix="t")
    assert [place.draft.type for place in planned if place.draft] == ["task.instruction", "chat.message"]
    assert len(set(ids(planned))) == 2


def test_a_null_argument_is_packed_as_text() -> None:
    planned = argument_cards(recipe(pack_arguments=[{"arg_key": "a"}]), {"a": None}, tool_suffix="t")
    assert [place.draft and place.draft.content for place in planned] == [TextContent("null")]


@pytest.mark.parametrize(
    ("card_type", "value", "content"),
    [
        ("task.result_fields", [{"name": "n", "description": "d"}], FieldsSchemaContent),
        ("task.instruction", [{"name": "n", "description": "d"}], JsonContent),
        ("task.result_field", [{"name": "n", "description": "d"}], JsonContent),
        ("my.own_type", "text", TextContent),
    ],
)
def test_only_result_fields_become_a_fields_schema(card_type: str, value: object, content: type) -> None:
    loaded = recipe(pack_arguments=[{"arg_key": "a", "as_card_type": card_type}])
    (planned,) = argument_cards(loaded, {"a": value}, tool_suffix="t")
    assert planned.draft is not None
    assert type(planned.draft.content) is content


def test_card_metadata_is_a_copy_of_the_rule_metadata() -> None:
    loaded = recipe(pack_arguments=[{"arg_key": "a", "card_metadata": {"tags": ["x"]}}])
    for _ in range(2):
        (planned,) = argument_cards(loaded, {"a": "x"}, tool_suffix="t")
        assert planned.draft is not None
        assert planned.draft.metadata == {
            "type": "task.instruction",
            "role": "user",
            "author_id": "t",
            "tags": ["x"],
        }
        planned.draft.metadata["tags"].append("y")


def test_rule_metadata_cannot_override_author_or_type() -> None:
    forged = {"author_id": "somebody", "type": "sys.profile"}
    loaded = recipe(pack_arguments=[{"arg_key": "a", "card_metadata": forged}])
    (planned,) = argument_cards(loaded, {"a": "x"}, tool_suffix="t")
    assert planned.draft is not None
    assert (planned.draft.metadata["author_id"], planned.draft.type) == ("t", "task.instruction")


# Rule 3: which boxes.


@pytest.mark.parametrize(
    ("arguments", "boxes"),
    [
        pytest.param({}, [], id="absent"),
        pytest.param({"a": []}, [], id="empty list"),
        pytest.param({"a": BOX_A}, [(BOX_A, "a")], id="one"),
        pytest.param({"b": [BOX_B], "a": [BOX_A]}, [(BOX_A, "a"), (BOX_B, "b")], id="the recipe's order"),
        pytest.param({"a": [BOX_B, BOX_A]}, [(BOX_B, "a"), (BOX_A, "a")], id="order within a list"),
        pytest.param({"a": BOX_A.upper()}, [(BOX_A, "a")], id="upper case"),
        pytest.param({"a": BOX_A.replace("-", "")}, [(BOX_A, "a")], id="no dashes"),
        pytest.param({"a": f" {BOX_A}\n"}, [(BOX_A, "a")], id="space around"),
        pytest.param({"a": 12}, [("12", "a")], id="an integer"),
        pytest.param({"a": "no uuid"}, [("no uuid", "a")], id="no uuid"),
        pytest.param({"unused": BOX_A}, [], id="not inherited from"),
    ],
)
def test_boxes_are_read_from_the_named_arguments(
    arguments: dict[str, Any], boxes: list[tuple[str, str]]
) -> None:
    named = inherited_boxes(inheriting("a", "b"), arguments)
    assert [(box.box_id, box.arg_key) for box in named] == boxes


@pytest.mark.parametrize(
    "spelling", [BOX_A, BOX_A.upper(), BOX_A.replace("-", "")], ids=["same", "upper case", "no dashes"]
)
def test_the_allow_list_ignores_the_format_of_box_ids(spelling: str) -> None:
    for allowed, asked in [(spelling, BOX_A), (BOX_A, spelling)]:
        (box,) = inherited_boxes(inheriting("a", allowed=[allowed]), {"a": asked})
        assert box.box_id == BOX_A


def test_a_box_outside_the_allow_list_is_refused_in_any_position() -> None:
    loaded = inheriting("a", "b", allowed=[BOX_A])
    with pytest.raises(BadRequest) as caught:
        inherited_boxes(loaded, {"a": BOX_A, "b": [BOX_A, BOX_B]})
    assert caught.value.message == f"inherit_context: unauthorized box_id: '{BOX_B}' (argument 'b')"


def test_shapes_are_checked_before_permissions() -> None:
    with pytest.raises(BadRequest) as caught:
        inherited_boxes(inheriting("a", "b", allowed=[]), {"a": BOX_A, "b": None})
    assert caught.value.message == (
        "inherit_context.b must be a box id or a list of box ids: argument 'b' is null"
    )


# Rule 3: which cards.


def inherited(*arg_keys_and_boxes: tuple[str, str]) -> list[InheritedBox]:
    return [InheritedBox(box_id=box_id, arg_key=arg_key) for arg_key, box_id in arg_keys_and_boxes]


def test_a_repeated_card_keeps_its_first_place_and_rule() -> None:
    boxes = inherited(("a", BOX_A), ("b", BOX_B))
    planned = inherited_cards(boxes, {BOX_A: ["1", "2", "1"], BOX_B: ["3", "2", "4"]})
    assert [(place.card_id, place.rule) for place in planned] == [
        ("1", f"inherit_context a (box {BOX_A})"),
        ("2", f"inherit_context a (box {BOX_A})"),
        ("3", f"inherit_context b (box {BOX_B})"),
        ("4", f"inherit_context b (box {BOX_B})"),
    ]


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=5))
def test_cards_are_deduplicated_in_order(id_lists: list[list[str]]) -> None:
    boxes = inherited(*(("a", str(number)) for number in range(len(id_lists))))
    planned = inherited_cards(boxes, {str(number): held for number, held in enumerate(id_lists)})
    assert ids(planned) == list(dict.fromkeys(card_id for held in id_lists for card_id in held))


# Narrowing.


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, False),
        ({"include_boxes_from_args": ["a"], "include_parent": True}, False),
        ({"include_card_types": ["x"]}, True),
        ({"exclude_card_types": ["x"]}, True),
        ({"max_cards": 1}, True),
        ({"max_tokens": 1}, True),
        ({"answered_calls_only": True}, True),
        ({"answered_calls_only": False}, False),
    ],
)
def test_only_some_limits_need_the_cards(limits: dict[str, Any], expected: bool) -> None:
    assert has_limits(InheritContext(**limits)) is expected


CONVERSATION = [
    card("ask", "task.instruction"),
    thought("think", "c1", "c2"),
    scheduled("call1", "c1"),
    result("res1", "c1"),
    card("note", "todo.item"),
    result("res2", "c2"),
    card("done", "task.deliverable"),
]
CALL = ["think", "call1", "res1", "res2"]


@pytest.mark.parametrize(
    ("limits", "left_out"),
    [
        pytest.param({"max_cards": 7}, {}, id="all fit"),
        pytest.param(
            {"max_cards": 6}, {"ask": "beyond max_cards 6"}, id="one too many: the oldest goes"
        ),
        pytest.param(
            {"max_cards": 5},
            dict.fromkeys(["ask", *CALL], "beyond max_cards 5"),
            id="a call goes with its results though three of them would fit",
        ),
        pytest.param(
            {"max_cards": 1}, dict.fromkeys(["ask", *CALL, "note"], "beyond max_cards 1"), id="the newest"
        ),
        pytest.param(
            {"include_card_types": ["task.instruction", "task.deliverable"]},
            {
                **dict.fromkeys(CALL, "type agent.thought is not included (with its tool call)"),
                "note": "type todo.item is not included",
            },
            id="included types",
        ),
        pytest.param(
            {"exclude_card_types": ["tool.result"]},
            dict.fromkeys(CALL, "type tool.result is excluded (with its tool call)"),
            id="excluding results takes the calls along",
        ),
        pytest.param(
            {"exclude_card_types": ["todo.item"], "max_cards": 5},
            {"note": "type todo.item is excluded", "ask": "beyond max_cards 5"},
            id="what its type leaves out costs nothing",
        ),
        pytest.param({"include_card_types": ["agent.thought"]}, {
            "ask": "type task.instruction is not included",
            **dict.fromkeys(CALL, "type tool.call is not included (with its tool call)"),
            "note": "type todo.item is not included",
            "done": "type task.deliverable is not included",
        }, id="a call alone is never included"),
    ],
)  # fmt: skip
def test_limits_leave_out_cards_with_a_reason(limits: dict[str, Any], left_out: dict[str, str]) -> None:
    kept, out = narrow_all(CONVERSATION, **limits)
    assert {each.card_id: each.reason for each in out} == left_out
    assert ids(out) == [each.card_id for each in CONVERSATION if each.card_id in left_out]
    assert ids(kept) == [each.card_id for each in CONVERSATION if each.card_id not in left_out]


@pytest.mark.parametrize(
    ("cards", "left_out"),
    [
        pytest.param(CONVERSATION, [], id="all answered"),
        pytest.param(
            [*CONVERSATION[:5], CONVERSATION[6]], ["think", "call1", "res1"], id="one of two is not answered"
        ),
        pytest.param([card("a"), thought("t", "c"), scheduled("s", "c")], ["t", "s"], id="in flight"),
        pytest.param([card("a"), scheduled("s", "c"), result("r", "c")], [], id="without a thought"),
        pytest.param([result("r", "c"), card("a")], [], id="a result alone is no call"),
    ],
)
def test_an_unanswered_call_is_left_out_with_its_exchange(cards: list[Card], left_out: list[str]) -> None:
    kept, out = narrow_all(cards, answered_calls_only=True)
    assert ids(out) == left_out
    assert {each.reason for each in out} <= {"its tool call has no result"}
    assert ids(kept) == [each.card_id for each in cards if each.card_id not in left_out]


def test_a_missing_card_keeps_its_place_without_type_or_count_limits() -> None:
    planned, cards = places(["a", "gone"]), {"a": card("a")}
    assert ids(narrow_cards(planned, cards, InheritContext(answered_calls_only=True))[0]) == ["a", "gone"]
    assert ids(narrow_cards(planned, cards, InheritContext(answered_calls_only=True, max_cards=5))[0]) == [
        "a"
    ]


def narrow_cards(
    planned: Sequence[PlannedCard], cards: Mapping[str, Card], inherit: InheritContext
) -> tuple[list[PlannedCard], list[ExcludedCard]]:
    candidates = {card_id: inheritable_card(each, inherit) for card_id, each in cards.items()}
    return apply_limits(planned, candidates, inherit)


def narrow_all(cards: Sequence[Card], **limits: Any) -> tuple[list[PlannedCard], list[ExcludedCard]]:
    by_id = {each.card_id: each for each in cards}
    return narrow_cards(places(list(by_id)), by_id, InheritContext(**limits))


def test_cards_older_than_an_excluded_exchange_are_left_out() -> None:
    cards = [card("old"), thought("think", "c"), result("res", "c"), card("new")]
    kept, out = narrow_all(cards, max_cards=2)
    assert ids(kept) == ["new"]
    assert ids(out) == ["old", "think", "res"]


def test_equal_call_ids_are_paired_by_distance() -> None:
    cards = [thought("t1", "c"), result("r1", "c"), thought("t2", "c"), result("r2", "c")]
    kept, _ = narrow_all(cards, max_cards=2)
    assert ids(kept) == ["t2", "r2"]


def test_a_result_without_a_call_is_its_own_exchange() -> None:
    kept, _ = narrow_all([card("old"), result("orphan", "c")], max_cards=1)
    assert ids(kept) == ["orphan"]


def test_a_left_out_card_keeps_the_rule_that_selected_it() -> None:
    planned = [*places(["a"], rule="first"), *places(["b"], rule="second")]
    _, out = narrow_cards(planned, {"a": card("a"), "b": card("b")}, InheritContext(max_cards=1))
    assert out == [ExcludedCard(card_id="a", rule="first", reason="beyond max_cards 1")]


def test_a_missing_card_is_left_out_and_not_counted() -> None:
    kept, out = narrow_cards(
        places(["a", "gone", "b"]), {"a": card("a"), "b": card("b")}, InheritContext(max_cards=2)
    )
    assert ids(kept) == ["a", "b"]
    assert out == [ExcludedCard(card_id="gone", rule="r", reason="no such card")]


@pytest.mark.parametrize(
    ("max_tokens", "kept"),
    [(1, ["c"]), (2, ["c"]), (3, ["b", "c"]), (82, ["b", "c"]), (83, ["a", "b", "c"])],
)
def test_tokens_are_counted_from_the_newest(max_tokens: int, kept: list[str]) -> None:
    texts = {"a": "x" * 400, "b": "x" * 8, "c": "x" * 4}
    cards = [card(card_id, content=TextContent(text)) for card_id, text in texts.items()]
    found, out = narrow_all(cards, max_tokens=max_tokens)
    assert ids(found) == kept
    assert {each.reason for each in out} <= {f"beyond max_tokens {max_tokens}"}


def test_a_newest_card_above_the_token_limit_leaves_no_cards() -> None:
    kept, out = narrow_all([card("a"), card("b", content=TextContent("x" * 40))], max_tokens=7)
    assert (ids(kept), ids(out)) == ([], ["a", "b"])


@pytest.mark.parametrize(
    ("content", "tool_calls", "tokens"),
    [
        pytest.param(TextContent(""), None, 0, id="nothing"),
        pytest.param(TextContent("x" * 40), None, 8, id="text"),
        pytest.param(JsonContent({"k": "v"}), None, 5, id="json as it is spelled"),
        pytest.param(TextContent(""), [{"id": "c", "x": 1}], 9, id="tool calls"),
        pytest.param(TextContent("x" * 40), [{"id": "c", "x": 1}], 17, id="both"),
        pytest.param({"__type__": "NoSuchClass", "k": "v"}, None, 5, id="an unknown class"),
        pytest.param(None, None, 0, id="no content"),
    ],
)
def test_a_card_has_estimated_tokens(content: StoredContent, tool_calls: Any, tokens: int) -> None:
    assert card_tokens(card("a", content=content, tool_calls=tool_calls)) == tokens


# Conversations whose exchanges are known: every call id is used once, results stand after their calls.

TYPES = ["chat.message", "task.instruction", "todo.item"]


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Card], dict[str, int]]:
    """Cards in order, and of each the number of the exchange that it is part of."""
    sizes = draw(st.lists(st.integers(0, 3), max_size=7), label="results of each exchange")
    order = draw(st.permutations([number for number, size in enumerate(sizes) for _ in range(size + 1)]))
    cards: list[Card] = []
    exchange_of: dict[str, int] = {}
    for number in order:
        card_id = f"card{len(cards)}"
        called = number in exchange_of.values()
        parts = {"content": TextContent("x" * draw(st.integers(0, 60)))}
        if called:
            kind = draw(st.sampled_from(["tool.result", "tool.call"]))
            answered = sum(1 for each in exchange_of.values() if each == number)
            cards.append(card(card_id, kind, tool_call_id=f"{number}.{answered}", **parts))
        elif sizes[number]:
            calls = [{"id": f"{number}.{place}"} for place in range(1, sizes[number] + 1)]
            cards.append(card(card_id, "agent.thought", tool_calls=calls, **parts))
        else:
            cards.append(card(card_id, draw(st.sampled_from(TYPES)), **parts))
        exchange_of[card_id] = number
    return cards, exchange_of


@st.composite
def limits(draw: st.DrawFn) -> InheritContext:
    """What a recipe may limit: types that do not contradict each other, and budgets; each may be absent."""
    types = st.sets(st.sampled_from([*TYPES, "agent.thought", "tool.call", "tool.result"]))
    included = draw(types)
    wanted: dict[str, Any] = {
        "include_card_types": included,
        "exclude_card_types": draw(types) - included,
        "max_cards": draw(st.none() | st.integers(1, 15)),
        "max_tokens": draw(st.none() | st.integers(1, 80)),
    }
    return InheritContext(**{name: limit for name, limit in wanted.items() if limit})


def allowed_type(limits: InheritContext, found: Card) -> bool:
    included, excluded = limits.include_card_types, limits.exclude_card_types
    return (included is None or found.type in included) and (excluded is None or found.type not in excluded)


def within_budget(limits: InheritContext, cards: Sequence[Card]) -> bool:
    most_cards = float("inf") if limits.max_cards is None else limits.max_cards
    most_tokens = float("inf") if limits.max_tokens is None else limits.max_tokens
    return len(cards) <= most_cards and sum(map(card_tokens, cards)) <= most_tokens


Narrowed = tuple[list[Card], Mapping[str, int], list[PlannedCard], list[ExcludedCard]]


def narrowed(conversation: tuple[list[Card], dict[str, int]], wanted: InheritContext) -> Narrowed:
    cards, exchange_of = conversation
    kept, out = narrow_cards(
        places([each.card_id for each in cards]), {each.card_id: each for each in cards}, wanted
    )
    return cards, exchange_of, kept, out


@given(conversations(), limits())
def test_narrowing_reports_every_card_and_keeps_the_order(
    conversation: tuple[list[Card], dict[str, int]], wanted: InheritContext
) -> None:
    cards, _, kept, out = narrowed(conversation, wanted)
    planned = [each.card_id for each in cards]
    assert sorted(ids(kept) + ids(out)) == sorted(planned)
    assert ids(kept) == [card_id for card_id in planned if card_id in ids(kept)]
    assert ids(out) == [card_id for card_id in planned if card_id in ids(out)]
    assert all(each.reason for each in out)


@given(conversations(), limits())
def test_narrowing_never_separates_a_call_from_its_results(
    conversation: tuple[list[Card], dict[str, int]], wanted: InheritContext
) -> None:
    _, exchange_of, kept, out = narrowed(conversation, wanted)
    assert {exchange_of[each] for each in ids(kept)}.isdisjoint(exchange_of[each] for each in ids(out))


@given(conversations(), limits())
def test_narrowing_respects_types_and_budgets(
    conversation: tuple[list[Card], dict[str, int]], wanted: InheritContext
) -> None:
    cards, _, kept, _ = narrowed(conversation, wanted)
    remaining = [each for each in cards if each.card_id in ids(kept)]
    assert all(allowed_type(wanted, each) for each in remaining)
    assert within_budget(wanted, remaining)


@given(conversations(), limits())
def test_narrowing_keeps_as_many_of_the_newest_exchanges_as_fit(
    conversation: tuple[list[Card], dict[str, int]], wanted: InheritContext
) -> None:
    cards, exchange_of, kept, _ = narrowed(conversation, wanted)
    exchanges: dict[int, list[Card]] = {}
    for each in cards:
        exchanges.setdefault(exchange_of[each.card_id], []).append(each)
    fitting = [
        members for members in exchanges.values() if all(allowed_type(wanted, each) for each in members)
    ]
    expected: list[Card] = []
    while fitting and within_budget(wanted, [*fitting[-1], *expected]):
        expected += fitting.pop()
    assert set(ids(kept)) == {each.card_id for each in expected}


# Rule 4 and the order of the whole.


def test_the_parent_pointer_names_the_source_agent() -> None:
    (planned,) = parent_card(recipe(inherit_context={"include_parent": True}), source_agent_id="agent-7")
    assert planned.rule == "include_parent"
    assert planned.draft is not None
    assert planned.draft.content == JsonContent({"parent_agent_id": "agent-7"})
    assert planned.draft.metadata == {
        "type": "meta.parent_pointer",
        "role": "system",
        "author_id": "agent-7",
    }


@pytest.mark.parametrize("inherit", [{}, {"include_parent": False}], ids=["absent", "false"])
def test_the_parent_pointer_is_added_only_on_request(inherit: dict[str, Any]) -> None:
    assert parent_card(recipe(inherit_context=inherit), source_agent_id="agent-7") == []


STEPS = {"pack_arguments": ["arg"], "inherit_context": ["box1", "box2"], "include_parent": ["parent"]}


@pytest.mark.parametrize("order", list(permutations(STEPS)), ids="-".join)
def test_the_recipe_defines_the_order_of_the_three_steps(order: Sequence[str]) -> None:
    arranged = arranged_by(recipe(order=list(order)))
    assert arranged.card_ids == [card_id for step in order for card_id in STEPS[step]]


def test_the_default_order_is_arguments_boxes_parent() -> None:
    assert arranged_by(recipe()).card_ids == ["arg", "box1", "box2", "parent"]


def test_steps_missing_from_the_order_follow_in_default_order() -> None:
    for order, cards in {
        (): ["arg", "box1", "box2", "parent"],
        ("include_parent",): ["parent", "arg", "box1", "box2"],
        ("inherit_context",): ["box1", "box2", "arg", "parent"],
        ("include_parent", "inherit_context"): ["parent", "box1", "box2", "arg"],
    }.items():
        loaded = recipe(order=list(order))
        assert arranged_by(loaded).card_ids == cards
    whole = recipe(order=["include_parent", "inherit_context", "pack_arguments"])
    assert loaded.digest() == whole.digest()


def arranged_by(loaded: Recipe, parents: Sequence[InheritedBox] = ()) -> PackPlan:
    sections = {step: places(card_ids) for step, card_ids in STEPS.items()}
    return build_plan(loaded, sections, parents=parents, left_out=[])


def test_a_repeated_inherited_box_is_a_parent_once() -> None:
    boxes = inherited(("a", BOX_B), ("a", BOX_A), ("b", BOX_B))
    assert arranged_by(recipe(), boxes).parent_ids == [BOX_B, BOX_A]


# The plan as provenance keeps it.


def plan_of(rules: Sequence[str]) -> PackPlan:
    cards = [PlannedCard(card_id=str(place), rule=rule) for place, rule in enumerate(rules)]
    return PackPlan(cards=cards, parent_ids=[], left_out=[])


def test_adjacent_cards_of_one_rule_form_one_run() -> None:
    assert plan_of(["a", "a", "b", "a"]).rules() == [
        ProvenanceRule("a", 2),
        ProvenanceRule("b", 1),
        ProvenanceRule("a", 1),
    ]


@given(st.lists(st.sampled_from("ab")))
def test_the_runs_give_the_rule_of_every_position(rules: list[str]) -> None:
    kept = Provenance(recipe="r", recipe_digest="", digest="", rules=plan_of(rules).rules())
    assert [kept.rule_of(position) for position in range(len(rules))] == rules
    assert kept.rule_of(len(rules)) is None


def test_drafts_contain_only_the_new_cards() -> None:
    new = argument_cards(recipe(pack_arguments=[{"arg_key": "a"}]), {"a": "x"}, tool_suffix="t")
    plan = PackPlan(cards=[*places(["old"]), *new], parent_ids=[], left_out=[])
    assert ids(plan.cards) == ["old", plan.drafts[0].card_id]
    assert len(plan.drafts) == 1
