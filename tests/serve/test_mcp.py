"""The tools for agents: asked by the SDK's own client, over the standard streams of a real process."""

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from cardbox_cli.model.cards import draft_card
from cardbox_cli.serve.bounded import bounded
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT
from tests.execution.fixtures import Asked

Call = tuple[str, dict[str, Any]]
Ask = Callable[..., list[tuple[bool, Any]]]


def in_a_thread(ask: Callable[[], Awaitable[Any]]) -> Any:
    """What it answers: another test may have left an event loop to this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, ask).result()


@pytest.fixture
def environment(target: Target) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "CBX_DATABASE_URL": target.conninfo or "", "CBX_PROJECT": PROJECT}


@pytest.fixture
def agent(environment: dict[str, str]) -> Ask:
    """What an agent is told by these calls, one after the other: whether it is an error, and the answer."""

    def ask(*calls: Call, project: str = PROJECT) -> list[tuple[bool, Any]]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "cardbox_cli", "--project", project, "mcp"],
            env=environment,
        )

        async def asked() -> list[tuple[bool, Any]]:
            async with Client(server) as client:
                return [_told(await client.call_tool(name, arguments)) for name, arguments in calls]

        return in_a_thread(asked)

    return ask


def _told(result: Any) -> tuple[bool, Any]:
    [content] = result.content
    return bool(result.is_error), content.text if result.is_error else json.loads(content.text)


def test_its_tools_are_said_to_only_read(environment: dict[str, str]) -> None:
    server = StdioServerParameters(command=sys.executable, args=["-m", "cardbox_cli", "mcp"], env=environment)

    async def listed() -> Any:
        async with Client(server) as client:
            return (await client.list_tools()).tools

    tools = in_a_thread(listed)
    assert {tool.name for tool in tools} == {
        "why", "list_turns", "show_turn", "search_cards", "show_card", "show_box", "render", "cost",
    }  # fmt: skip
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)


def test_a_stuck_turn_is_found_with_its_proof_and_its_fix(
    agent: Ask, ask: Asked, database: Database, row_counts: Callable[[], dict[str, int]]
) -> None:
    turn = ask("clerk").agent_turn_id
    database.connection.execute("UPDATE state.agent_inbox SET status = 'error', last_error = 'boom'")
    before = row_counts()
    [(_, problems), (_, one), (_, shown), (_, rendered), (_, found), (_, cost)] = agent(
        ("why", {}),
        ("why", {"turn": turn}),
        ("show_turn", {"turn": turn[-8:]}),
        ("render", {"turn": turn}),
        ("search_cards", {"text": "cause"}),
        ("cost", {"turn": turn}),
    )
    [problem] = problems
    assert problem["turn"] == turn
    assert problem["fix"].startswith("cbx ")
    assert (one["verdict"], one["fix"]) == (problem["verdict"], problem["fix"])
    assert any("boom" in proof["shows"] for proof in one["evidence"])
    assert shown["agent_turn_id"] == turn
    assert rendered["body"]["messages"]
    assert [card["content"]["text"] for card in found] == ["Find the cause."]
    assert cost["kind"] == "turn"
    assert row_counts() == before


def test_boxes_and_cards_are_shown(agent: Ask, cards: CardStore, boxes: BoxStore) -> None:
    drafts = [draft_card("agent.thought", f"text {number}") for number in range(5)]
    cards.add_many(drafts)
    box = boxes.create([draft.card_id for draft in drafts]).box_id
    [(_, shown), (_, card)] = agent(
        ("show_box", {"box": box[:8], "last": 2}), ("show_card", {"card": drafts[0].card_id[-8:]})
    )
    assert (shown["cards"], [slot["position"] for slot in shown["last"]]) == (5, [3, 4])
    assert card["card_id"] == drafts[0].card_id


def test_what_is_wrong_is_told_in_words(agent: Ask, ask: Asked) -> None:
    turn = ask("clerk").agent_turn_id
    answers = agent(
        ("show_turn", {"turn": "turn_nope"}),
        ("render", {}),
        ("render", {"turn": turn, "box": "x"}),
        ("search_cards", {"text": ""}),
    )
    assert [is_error for is_error, _ in answers] == [True] * 4
    texts = [text for _, text in answers]
    assert "not-found: no turn 'turn_nope' in project 'p'" in texts[0]
    assert "name one of box, turn, chat" in texts[1]
    assert all("Traceback" not in text for text in texts)


def test_another_project_s_are_not_there(agent: Ask, ask: Asked) -> None:
    turn = ask("clerk").agent_turn_id
    [(is_error, text), (_, none), (_, nothing)] = agent(
        ("show_turn", {"turn": turn}),
        ("list_turns", {}),
        ("search_cards", {"text": "cause"}),
        project="other",
    )
    assert is_error
    assert "in project 'other'" in text
    assert (none, nothing) == ([], [])


def test_it_ends_when_nobody_speaks_to_it(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cardbox_cli", "mcp"],
        env=environment, input=b"", capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1_000_000,
        ["y" * 100] * 100_000,
        {"a": {"b": ["z" * 10_000] * 50}},
        [[[["w"] * 20] * 20] * 20] * 20,
    ],
    ids=["a text", "a list", "within", "many in many"],
)
def test_an_answer_is_cut_to_what_a_model_takes_in(value: Any) -> None:
    said = bounded(value)
    assert len(said) < 41_000
    assert "more" in said


def test_a_short_answer_is_whole() -> None:
    assert json.loads(bounded({"a": [1.50, "\x1b", None]})) == {"a": [1.5, "\x1b", None]}
