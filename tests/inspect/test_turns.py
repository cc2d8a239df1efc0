"""Turns and their traces are the same on every surface."""

import re

from tests.conftest import Cbx
from tests.inspect.conftest import Surface


def test_a_turn_is_found_by_a_part_of_its_id_on_every_surface(
    command: Surface, http: Surface, tool: Surface, page: Surface, turns: list[str]
) -> None:
    for turn in turns:
        shown = command("turn", "show", turn)
        assert shown == http(f"/turns/{turn[-8:]}") == tool("show_turn", turn=turn[-8:])
        seen = page(f"/turns/{turn[-8:]}")
        assert all(event["text"].split(" (")[0] in seen for event in shown["timeline"][:1])
        assert turn in seen


def test_the_newest_turns_are_listed_first_on_every_surface(
    command: Surface, http: Surface, tool: Surface, page: Surface, turns: list[str]
) -> None:
    listed = command("turn", "list")
    assert [each["agent_turn_id"] for each in listed] == turns[::-1]
    assert listed == http("/turns") == tool("list_turns")
    places = [page("").index(turn[-8:]) for turn in turns[::-1]]
    assert places == sorted(places)


def test_a_list_has_50_turns_by_default(
    command: Surface, http: Surface, tool: Surface, turns: list[str], cbx: Cbx, box: str
) -> None:
    for _ in range(50):
        assert cbx("dispatch", "--agent", "clerk", "--context-box", box).code == 0
    listed = command("turn", "list")
    assert len(listed) == 50
    assert listed == http("/turns") == tool("list_turns")


def test_a_trace_is_the_same_on_every_surface(command: Surface, page: Surface, turns: list[str]) -> None:
    trace = command("turn", "trace", turns[0])
    assert [each["agent_turn_id"] for each in trace["turns"]] == [turns[0]]
    shown = page("/trace", turn=turns[0][-8:])
    assert re.search(rf"{turns[0][-8:]}", shown)
    assert trace["trace_id"] in shown
