"""The request of a box, a step or an agent's turn is the same one on every surface."""

from typing import Any

from starlette.testclient import TestClient

from tests.conftest import PROJECT, Cbx
from tests.inspect.conftest import Surface


def compare(
    command: Surface, http: Surface, tool: Surface, page: Surface, *options: str, **named: str
) -> dict[str, Any]:
    """Ask each surface for one request, and return the answer that API and tool share."""
    answer: dict[str, Any] = http("/render", **named)
    assert tool("render", **named) == answer
    asked = [word for key, value in named.items() for word in (f"--{key}", value)]
    explained = command("render", *asked, "--explain")
    assert (explained["request"], explained["explanation"]) == (answer["body"], answer["explanation"])
    if "agent" not in named and "profile" not in named:
        shown = page("/request", **named)
        assert answer["name"] in shown or answer["step_id"][-8:] in shown
        assert all(f"Note: {note}." in shown for note in answer["notes"])
    return answer


def test_the_request_of_a_box_is_the_same_on_every_surface(
    command: Surface, http: Surface, tool: Surface, page: Surface, turns: list[str], box: str
) -> None:
    alone = compare(command, http, tool, page, box=box[-8:])
    assert alone["name"] == f"box {box}"
    assert [each["role"] for each in alone["body"]["messages"]] == ["user"]
    with_profile = compare(command, http, tool, page, box=box, profile="clerk")
    assert with_profile["body"]["model"] == "gpt-4o"
    assert [each["role"] for each in with_profile["body"]["messages"]] == ["system", "user"]


def test_requests_of_steps_and_agents_are_the_same_on_every_surface(
    command: Surface, http: Surface, tool: Surface, page: Surface, cbx: Cbx, turns: list[str]
) -> None:
    sent, waiting = turns[0], turns[2]
    first = compare(command, http, tool, page, turn=sent[-8:], at="1")
    last = compare(command, http, tool, page, turn=sent)
    assert len(last["body"]["messages"]) > len(first["body"]["messages"])
    of_agent = compare(command, http, tool, page, agent="clerk")
    assert of_agent["notes"] == [f"agent 'clerk': turn {waiting}, dispatched", "as cbx would compose it"]
    noted = cbx("render", "--agent", "clerk").err.splitlines()
    assert noted[:2] == [f"note: {note}" for note in of_agent["notes"]]


def test_findings_match_those_of_render_check(
    command: Surface, http: Surface, tool: Surface, page: Surface, turns: list[str]
) -> None:
    answer = compare(command, http, tool, page, turn=turns[0])
    assert command("render", "--turn", turns[0], "--check") == answer["findings"]


def test_a_profile_cannot_be_combined_with_a_turn(api: TestClient, cbx: Cbx, turns: list[str]) -> None:
    answer = api.get(f"/projects/{PROJECT}/render", params={"turn": turns[0], "profile": "clerk"})
    assert answer.status_code == 400
    assert "profile requires a box" in answer.json()["detail"]["error_message"]
    refused = cbx("render", "--turn", turns[0], "--profile", "clerk").err
    assert "--profile requires --box, not a turn, agent or chat" in refused
