"""System text within the history of a request to Anthropic: where a model takes it there, and where it moves up."""

from typing import Any

import msgspec
import pytest

from cardbox_cli.context.losses import losses
from cardbox_cli.context.request import Request
from tests.context.lint.cards import found, system, thought, user
from tests.providers.test_anthropic import anthropic, imported, request

NEWER, OLDER = "claude-opus-4-8", "claude-sonnet-4-6"
MOVED = "system text within the history is moved to the top"
ADDED = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}
SAID: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "system", "content": [ADDED, {"type": "text", "text": "Use f."}], "clear_at": "never"},
    {"role": "user", "content": "How are you?"},
]


def asked(model: str | None) -> Request:
    """The request of what was said to a model."""
    return msgspec.structs.replace(request(*imported("anthropic", *SAID)), model=model)


@pytest.mark.parametrize("model", [NEWER, "claude-sonnet-5", "anthropic/claude-haiku-5-5", "claude-fable-5"])
def test_system_text_stays_in_the_history_for_models_that_accept_it(model: str) -> None:
    made = anthropic.body(asked(model))
    assert made["messages"] == SAID
    assert "system" not in made
    assert losses(asked(model), anthropic) == []


@pytest.mark.parametrize("model", [OLDER, "claude-3-opus", None])
def test_system_text_moves_up_for_other_models_and_the_loss_is_reported(model: str | None) -> None:
    made = anthropic.body(asked(model))
    assert (made["system"], [each["role"] for each in made["messages"]]) == (
        "Use f.",
        ["user", "assistant", "user"],
    )
    told = {loss.what for loss in losses(asked(model), anthropic)}
    assert told == {MOVED, "a block of type 'tool_addition' in system text is left out"}


def test_system_text_before_the_history_comes_first_for_all_models() -> None:
    for model in (NEWER, OLDER):
        made = msgspec.structs.replace(request(system("Be brief."), user("Hi")), model=model)
        body = anthropic.body(made)
        assert (body["system"], body["messages"]) == ("Be brief.", [{"role": "user", "content": "Hi"}])
        assert losses(made, anthropic) == []


def test_moved_parent_pointers_are_not_reported() -> None:
    made = request(user("Hi"), system("{}", "meta.parent_pointer"))
    assert losses(msgspec.structs.replace(made, model=OLDER), anthropic) == []


def test_adjacent_system_messages_are_not_merged() -> None:
    cards = (user("Hi"), system("a"), system("b"), thought(text="Hello"), user("Go on."))
    cards = tuple(msgspec.structs.replace(each, card_id=str(place)) for place, each in enumerate(cards))
    made = anthropic.body(msgspec.structs.replace(request(*cards), model=NEWER))
    assert [each["content"] for each in made["messages"]] == ["Hi", "a", "b", "Hello", "Go on."]


def test_sent_messages_are_numbered_as_in_the_body() -> None:
    for model in (NEWER, OLDER):
        made = asked(model)
        numbers = {each.number for each in anthropic.sent_messages(made) if each.section == "messages"}
        assert numbers == set(range(1, len(anthropic.body(made)["messages"]) + 1))


def test_the_lint_accepts_system_text_that_stays() -> None:
    cards = (user(), thought(text="Hello"), system("Be brief."), user("And?"))
    rules = {
        model: [each.rule for each in found("anthropic", *cards, model=model)] for model in (NEWER, OLDER)
    }
    assert rules == {NEWER: [], OLDER: ["system-in-history"]}
