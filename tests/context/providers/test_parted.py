"""Parts of a message as cards: what came is what the cards give back, whether they keep it or make it anew."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given

from cardbox_cli.context.providers.bedrock_converse.blocks import PARTING as BEDROCK
from cardbox_cli.context.providers.gemini.parts import PARTING as GEMINI
from cardbox_cli.context.providers.openai_responses.items import PARTING as RESPONSES
from cardbox_cli.context.providers.parted import Parting, draft_parts, parts_of
from cardbox_cli.context.sources import same_json
from cardbox_cli.model.cards import CardDraft
from tests import jsonb_values

TEXT = {"text": "Let me look."}
SAID = {"role": "assistant", "content": "Let me look."}
CALLS: list[tuple[Parting, list[dict[str, Any]]]] = [
    (BEDROCK, [TEXT, {"toolUse": {"toolUseId": "c", "name": "f", "input": {"a": 1}}}]),
    (GEMINI, [TEXT, {"functionCall": {"id": "c", "name": "f", "args": {"a": 1}}}]),
    (RESPONSES, [SAID, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]),
]
RESULTS: list[tuple[Parting, list[dict[str, Any]]]] = [
    (BEDROCK, [{"toolResult": {"toolUseId": "c", "content": [{"text": "yes"}]}}]),
    (RESPONSES, [{"type": "function_call_output", "call_id": "c", "output": "yes"}]),
]
ALL = [*(("assistant", *each) for each in CALLS), *(("user", *each) for each in RESULTS)]
ODD = (None, True, 1, "", " ", "a", [], {}, [1], ["a"], [{}], [{"text": 1}], {"a": 1})
KEYS = ("type", "status", "role", "text", "name")


def given_back(parting: Parting, cards: list[CardDraft]) -> list[Any]:
    return [part for card in cards for part in parts_of(parting, card)]


@pytest.mark.parametrize(("role", "parting", "parts"), ALL)
def test_what_cards_hold_is_not_kept_beside_them(role: str, parting: Parting, parts: list[Any]) -> None:
    [card] = draft_parts(parting, role, parts)
    assert "source_blocks" not in card.metadata
    assert given_back(parting, [card]) == parts


@pytest.mark.parametrize(("role", "parting", "parts"), ALL)
def test_parts_come_back_whatever_is_odd_in_them(role: str, parting: Parting, parts: list[Any]) -> None:
    for odd in [*disturbed(parts), parts[::-1], parts * 2, [*parts, parts[0]]]:
        assert same_json(given_back(parting, draft_parts(parting, role, odd)), odd), odd


def disturbed(value: Any) -> Iterator[Any]:
    """The value with one thing left out, in the place of another, or more, anywhere in it."""
    steps = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    more = (
        [(key, each) for key in KEYS if key not in value for each in ODD] if isinstance(value, dict) else []
    )
    for step, each in [*((step, each) for step, _ in steps for each in ODD), *more]:
        other = deepcopy(value)
        other[step] = each
        yield other
    for step, inner in steps:
        left = deepcopy(value)
        del left[step]
        if left or isinstance(value, dict):
            yield left
        for each in disturbed(inner) if isinstance(inner, dict | list) else ():
            other = deepcopy(value)
            other[step] = each
            yield other


@pytest.mark.parametrize(("parting", "key"), [(BEDROCK, "input"), (GEMINI, "args")])
@given(arguments=jsonb_values.objects)
def test_arguments_come_back(parting: Parting, key: str, arguments: dict[str, Any]) -> None:
    [call] = (deepcopy(parts[1]) for each, parts in CALLS if each is parting)
    next(iter(call.values()))[key] = arguments
    [card] = draft_parts(parting, "assistant", [call])
    assert "source_blocks" not in card.metadata
    assert same_json(given_back(parting, [card]), [call])
