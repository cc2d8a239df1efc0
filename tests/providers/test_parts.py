"""Parts of a message as cards: what came is what the cards give back, whether they keep it or make it anew."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given

from cardbox_cli.context.sources import same_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.parts import PartsProvider
from cardbox_cli.providers.registry import provider_named
from tests import jsonb_values


def _parts_provider(name: str) -> PartsProvider:
    provider = provider_named(name)
    assert isinstance(provider, PartsProvider)
    return provider


BEDROCK, GEMINI = _parts_provider("bedrock-converse"), _parts_provider("gemini")
RESPONSES = _parts_provider("openai-responses")
TEXT = {"text": "Let me look."}
SAID = {"role": "assistant", "content": "Let me look."}
CALLS: list[tuple[PartsProvider, list[dict[str, Any]]]] = [
    (BEDROCK, [TEXT, {"toolUse": {"toolUseId": "c", "name": "f", "input": {"a": 1}}}]),
    (GEMINI, [TEXT, {"functionCall": {"id": "c", "name": "f", "args": {"a": 1}}}]),
    (RESPONSES, [SAID, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]),
]
RESULTS: list[tuple[PartsProvider, list[dict[str, Any]]]] = [
    (BEDROCK, [{"toolResult": {"toolUseId": "c", "content": [{"text": "yes"}]}}]),
    (RESPONSES, [{"type": "function_call_output", "call_id": "c", "output": "yes"}]),
]
ALL = [*(("assistant", *each) for each in CALLS), *(("user", *each) for each in RESULTS)]
ODD = (None, True, 1, "", " ", "a", [], {}, [1], ["a"], [{}], [{"text": 1}], {"a": 1})
KEYS = ("type", "status", "role", "text", "name")


def given_back(provider: PartsProvider, cards: list[CardDraft]) -> list[Any]:
    return [part for card in cards for part in provider.parts_of(card)]


@pytest.mark.parametrize(("role", "provider", "parts"), ALL)
def test_source_blocks_are_stored_only_if_cards_cannot_express_them(
    role: str, provider: PartsProvider, parts: list[Any]
) -> None:
    [card] = provider.draft_parts(role, parts)
    assert "source_blocks" not in card.metadata
    assert given_back(provider, [card]) == parts


@pytest.mark.parametrize(("role", "provider", "parts"), ALL)
def test_unusual_parts_survive_a_round_trip(role: str, provider: PartsProvider, parts: list[Any]) -> None:
    for odd in [*disturbed(parts), parts[::-1], parts * 2, [*parts, parts[0]]]:
        assert same_json(given_back(provider, provider.draft_parts(role, odd)), odd), odd


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


@pytest.mark.parametrize(("provider", "key"), [(BEDROCK, "input"), (GEMINI, "args")])
@given(arguments=jsonb_values.objects)
def test_tool_arguments_survive_a_round_trip(
    provider: PartsProvider, key: str, arguments: dict[str, Any]
) -> None:
    [call] = (deepcopy(parts[1]) for each, parts in CALLS if each is provider)
    next(iter(call.values()))[key] = arguments
    [card] = provider.draft_parts("assistant", [call])
    assert "source_blocks" not in card.metadata
    assert same_json(given_back(provider, [card]), [call])
