"""The costs of a turn, an agent, a chat or a box are the same on every surface."""

from typing import Any

import pytest

from tests.cli.conftest import succeed
from tests.conftest import Cbx
from tests.inspect.conftest import CLIENT, Surface


@pytest.fixture
def compare(command: Surface, http: Surface, tool: Surface, page: Surface) -> Surface:
    """Ask each surface what something costs, and return the answer that they share."""

    def ask(**named: str) -> dict[str, Any]:
        answer: dict[str, Any] = command(
            "cost", *(w for key, value in named.items() for w in (f"--{key}", value))
        )
        assert http("/cost", **named) == answer
        assert tool("cost", **named) == answer
        if not {"since", "profile"} & named.keys():
            shown = page("/cost", **named)
            assert f"requests {len(answer['steps'])} " in shown
            assert f"tokens ~{answer['tokens']:,} in all" in shown
            assert all(f"Note: {note}." in shown for note in answer["notes"])
            assert all(each["message"] in shown for each in answer["findings"])
        return answer

    return ask


def test_costs_of_turns_and_agents_are_the_same_on_every_surface(compare: Surface, turns: list[str]) -> None:
    assert [len(compare(turn=turn[-8:])["steps"]) for turn in turns] == [2, 2, 1]
    all_turns = compare(agent="clerk")
    assert [step["agent_turn_id"] for step in all_turns["steps"]] == [turns[0]] * 2 + [turns[1]] * 2 + [
        turns[2]
    ]
    assert all_turns["notes"] == [
        "agent 'clerk': 3 turns",
        f"{turns[2]} has sent nothing: its next request as cbx would compose it",
    ]
    assert compare(agent="clerk", since="1h") == all_turns


def test_a_profile_adds_to_the_costs_of_a_box_on_every_surface(
    compare: Surface, turns: list[str], box: str
) -> None:
    alone, with_profile = compare(box=box[-8:]), compare(box=box, profile="clerk")
    assert alone["id"] == with_profile["id"] == box
    assert with_profile["tokens"] > alone["tokens"]


def test_costs_of_a_chat_are_the_same_on_every_surface(compare: Surface, cbx: Cbx) -> None:
    for text in ("Hello", "And now?"):
        run = ("--exec", f"{CLIENT}")
        succeed(cbx("chat", "run", "a-chat", "--text", text, *run))
    answer = compare(chat="a-chat")
    assert (answer["notes"], len(answer["steps"])) == (["chat 'a-chat': 2 runs"], 2)
