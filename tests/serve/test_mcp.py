"""The tools for agents: asked by the SDK's own client, over the standard streams of a real process.

What is one tool's own is asked without a process between.
"""

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.server.mcpserver.exceptions import ToolError

from cardbox_cli.model.cards import draft_card
from cardbox_cli.serve.mcp import MAX_ANSWER, ToolRunner, encode_bounded, make_connection_pool, make_server
from cardbox_cli.settings import Settings
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.cli.conftest import succeed
from tests.conftest import PROJECT, Cbx
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


@pytest.fixture
def read(target: Target) -> Iterator[ToolRunner]:
    """What all tools ask by, in this process. A statement may take a tenth of a second."""
    with closing(make_connection_pool(target, longest=0.1)) as lending:
        yield ToolRunner(lending, PROJECT, settings=Settings())


def called(read: ToolRunner, *calls: Call) -> list[Any]:
    """The results of these calls, asked in this process."""

    async def asked() -> list[Any]:
        async with Client(make_server(read)) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    results: list[Any] = in_a_thread(asked)
    return results


def _told(result: Any) -> tuple[bool, Any]:
    [content] = result.content
    return bool(result.is_error), content.text if result.is_error else json.loads(content.text)


def test_the_tools_are_marked_as_read_only(environment: dict[str, str]) -> None:
    server = StdioServerParameters(command=sys.executable, args=["-m", "cardbox_cli", "mcp"], env=environment)

    async def listed() -> Any:
        async with Client(server) as client:
            return (await client.list_tools()).tools

    tools = in_a_thread(listed)
    assert {tool.name for tool in tools} == {
        "why", "list_turns", "show_turn", "search_cards", "show_card", "show_box", "render", "cost",
    }  # fmt: skip
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)


def test_a_stuck_turn_is_found_with_its_evidence_and_fix(
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
    assert [card["match"] for card in found] == ["Find the cause."]
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


def test_the_suggested_command_has_the_same_arguments(
    read: ToolRunner, cards: CardStore, ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("clerk")
    cards.add_many([draft_card("agent.thought", f"-word {'text ' * 5000}") for _ in range(3)])
    card = draft_card("agent.thought", "text " * 20_000)
    cards.add(card)
    monkeypatch.setattr("cardbox_cli.serve.mcp.encode_bounded", lambda value: encode_bounded(value, 300))
    told = [
        result.content[1].text.rpartition("the whole result with: ")[2].partition("  # database ")[0]
        for result in called(
            read,
            ("list_turns", {"agent": "clerk", "status": "dispatched", "limit": 7}),
            ("search_cards", {"text": "text", "type": "agent.thought"}),
            ("show_card", {"card": card.card_id}),
        )
    ]
    assert told == [
        "cbx turn list --agent clerk --status dispatched --limit 7 -o json --project p",
        "cbx card search text --type agent.thought --limit 50 -o json --project p",
        f"cbx card show {card.card_id} --deleted -o json --project p",
    ]


def test_an_answer_of_a_search_is_short(agent: Ask, cards: CardStore) -> None:
    texts = [f"{'word ' * 300}cancelled {number} {'日本語の文' * 200}" for number in range(60)]
    cards.add_many([draft_card("agent.thought", text) for text in texts])
    [(_, found)] = agent(("search_cards", {"text": "cancelled", "limit": 200}))
    assert len(json.dumps(found, ensure_ascii=False)) < 6_000
    assert "cancelled" in found[0]["match"]
    assert found[-1]["more"] + len(found) - 1 == 60


def test_a_deleted_card_is_shown_with_its_state(agent: Ask, cards: CardStore) -> None:
    there, gone = draft_card("agent.thought", "there"), draft_card("agent.thought", "gone")
    cards.add_many([there, gone])
    cards.delete([gone.card_id])
    told = agent(*(("show_card", {"card": each.card_id}) for each in (there, gone)))
    assert [(card["state"], card["content"]["text"]) for _, card in told] == [
        ("present", "there"),
        ("deleted", "gone"),
    ]


def test_errors_are_messages_for_the_model(agent: Ask, ask: Asked) -> None:
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
    assert "exactly one of box, turn, agent, chat is required" in texts[1]
    assert all("Traceback" not in text for text in texts)


def test_objects_of_another_project_are_not_found(agent: Ask, ask: Asked) -> None:
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


def test_an_unknown_project_is_not_reported_as_healthy(read: ToolRunner) -> None:
    [result] = called(read, ("why", {}))
    assert result.is_error
    assert "not-found: no project 'p'" in result.content[0].text


def test_answers_equal_the_output_of_the_commands(read: ToolRunner, ask: Asked, cbx: Cbx) -> None:
    turn = ask("clerk").agent_turn_id
    turns, shown, cost = called(
        read, ("list_turns", {"agent": "clerk"}), ("show_turn", {"turn": turn}), ("cost", {"turn": turn})
    )
    assert json.loads(turns.content[0].text) == json.loads(succeed(cbx("turn", "list", "-o", "json")))
    assert json.loads(shown.content[0].text) == json.loads(succeed(cbx("turn", "show", turn, "-o", "json")))
    by_command = json.loads(succeed(cbx("cost", turn, "-o", "json")))
    told = json.loads(cost.content[0].text)
    assert {key: told[key] for key in ("id", "tokens", "steps")} == {
        key: by_command[key] for key in ("id", "tokens", "steps")
    }


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (("render", {"turn": "t", "formt": "anthropic"}), "formt"),
        (("list_turns", {"status": "bogus"}), "queued|pending|dispatched"),
        (("list_turns", {"limit": 201}), "less than or equal to 200"),
        (("why", {"turn": "t", "agent": "a"}), "turn and agent cannot be combined"),
        (("search_cards", {"text": "  "}), "text"),
        (("show_card", {"card": "z" * 1_000_000}), "at most 400 characters"),
        (("search_cards", {"text": "a\0b"}), "NUL"),
    ],
    ids=["an argument it has not", "a state", "a limit", "two", "no words", "a long id", "a NUL"],
)
def test_a_wrong_argument_is_refused(read: ToolRunner, call: Call, says: str) -> None:
    [result] = called(read, call)
    assert result.is_error
    assert says in result.content[0].text
    assert len(result.content[0].text) < 2_100


def test_a_request_can_be_rendered_in_another_format(read: ToolRunner, ask: Asked) -> None:
    turn = ask("clerk").agent_turn_id
    [result] = called(read, ("render", {"turn": turn, "format": "anthropic"}))
    assert json.loads(result.content[0].text)["format"] == "anthropic"


def test_a_truncated_result_names_the_command_that_prints_all_of_it(
    read: ToolRunner, cards: CardStore
) -> None:
    draft = draft_card("agent.thought", f"begin {'x' * 100_000} end")
    cards.add_many([draft])
    [result] = called(read, ("show_card", {"card": draft.card_id}))
    answer, note = (content.text for content in result.content)
    card = json.loads(answer)
    assert card["card_id"] == draft.card_id
    assert card["content"]["text"].startswith("begin x")
    assert card["content"]["text"].endswith("x end")
    assert f"cbx card show {draft.card_id} --deleted -o json --project p  # database " in note


def test_a_tool_cannot_write(read: ToolRunner) -> None:
    with pytest.raises(ToolError, match="read-only"):
        read(lambda project: CardStore(project.database, PROJECT).add_many([draft_card("t", "x")]))


def test_a_statement_that_takes_too_long_is_canceled(read: ToolRunner) -> None:
    with pytest.raises(ToolError, match="statement timeout"):
        read(lambda project: project.database.connection.execute("SELECT pg_sleep(600)"))
    assert read(lambda _: "still there") == ['"still there"']


def test_an_unexpected_error_shows_no_stack_and_no_secret(
    read: ToolRunner, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(_: object) -> None:
        raise RuntimeError("cannot reach postgresql://reader:hunter2@db.example.org/cards")

    with caplog.at_level(logging.INFO), pytest.raises(ToolError) as caught:
        read(ask)
    assert "unexpected RuntimeError" in str(caught.value)
    [record] = caplog.records
    assert record.exc_info is None
    assert "hunter2" not in f"{caught.value}{record.getMessage()}"


def test_a_missing_library_is_reported_with_the_install_command(
    cbx: Cbx, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mcp" else find(name))
    refused = cbx("mcp")
    assert refused.code == 2
    assert "pip install 'cardbox-cli[mcp]'" in refused.err


def test_an_interrupt_ends_the_server_while_it_waits_for_input(environment: dict[str, str]) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with subprocess.Popen(
        [sys.executable, "-m", "cardbox_cli", "mcp"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout and process.stderr  # noqa: PT018
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == 1
            process.send_signal(signal.SIGINT)
            # Its stdin stays open meanwhile.
            assert process.wait(60) == 130
            assert (process.stdout.read(), process.stderr.read()) == (b"", b"\ninterrupted\n")
        finally:
            process.kill()


def test_the_server_ends_when_its_input_closes(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cardbox_cli", "mcp"],
        env=environment, input=b"", capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"")


def _nested(levels: int) -> Any:
    value: Any = "deep" * 20_000
    for level in range(levels):
        value = {"key": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1_000_000,
        "\x01超" * 100_000,
        ["y" * 100] * 100_000,
        list(range(100_000)),
        {"a": {"b": ["z" * 10_000] * 50}},
        {f"key {number}": number for number in range(100_000)},
        {"q" * 1_000_000: 1},
        [[[["w"] * 20] * 20] * 20] * 20,
        [10**900] * 1_000,
        _nested(400),
    ],
    ids=[
        "a text", "what takes many bytes", "a list", "many small", "within", "many keys", "a long key",
        "many in many", "numbers", "deep",
    ],
)  # fmt: skip
def test_a_long_result_is_truncated_to_the_limit(value: Any) -> None:
    said = encode_bounded({"id": "01a2084b946670bc9792427722eea78e", "value": value})
    assert len(said.json.encode()) <= MAX_ANSWER
    assert said.whole is not None
    assert json.loads(said.json)["id"] == "01a2084b946670bc9792427722eea78e"
    assert " more" in said.json


def test_only_the_long_parts_of_a_result_are_truncated() -> None:
    entries = [{"id": f"card {number}", "text": "x" * 50_000 if number == 3 else "y"} for number in range(9)]
    kept = json.loads(encode_bounded(entries).json)
    assert [each["id"] for each in kept] == [each["id"] for each in entries]
    assert [each["text"] for each in kept if each["id"] != "card 3"] == ["y"] * 8


def test_a_short_result_is_not_truncated() -> None:
    said = encode_bounded({"a": [1.50, "\x1b", None]})
    assert (json.loads(said.json), said.whole) == ({"a": [1.5, "\x1b", None]}, None)
