"""`cbx card import` of several files, folders, and one conversation of many."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx


def chat(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs" / "deep").mkdir(parents=True)
    (tmp_path / "logs" / "a.json").write_text(json.dumps([chat("one"), chat("two")]))
    (tmp_path / "logs" / "b.jsonl").write_text('{"oops\n')
    (tmp_path / "logs" / "deep" / "c.json").write_text(json.dumps(chat("three")))
    (tmp_path / "logs" / "notes.txt").write_text("none of it")
    return tmp_path / "logs"


def test_each_file_has_its_own_outcome(cbx: Cbx, folder: Path) -> None:
    result = cbx("card", "import", str(folder), "--keep-going", "-o", "json")
    assert result.code == 4
    answer = json.loads(result.out)
    assert [(box["place"], box["index"], box["title"]) for box in answer["boxes"]] == [
        (f"{folder}/a.json[0]", 0, "one"),
        (f"{folder}/a.json[1]", 1, "two"),
        (f"{folder}/deep/c.json", 0, "three"),
    ]
    [failed] = answer["failed"]
    assert (failed["file"], failed["code"]) == (f"{folder}/b.jsonl", "invalid-conversation")
    assert f"error: {folder}/b.jsonl:1" in result.err
    assert result.err.endswith("1 file of 3 refused and not imported\n")


def test_the_first_refused_file_ends_the_import(cbx: Cbx, folder: Path) -> None:
    result = cbx("card", "import", str(folder), "-o", "id")
    assert result.code == 4
    assert len(result.out.splitlines()) == 2
    assert (
        "b.jsonl is refused; 2 conversations before it imported; --keep-going continues with the rest of 3 files"
        in result.err
    )
    assert f"error: {folder}/b.jsonl:1" in result.err


def test_a_missing_file_is_reported_as_refused(cbx: Cbx, folder: Path) -> None:
    files = [str(folder / name) for name in ("a.json", "gone.json", "deep/c.json")]
    result = cbx("card", "import", *files, "-k", "-o", "id")
    assert (result.code, len(result.out.splitlines())) == (3, 3)
    assert f"error: no file '{files[1]}'" in result.err


def test_the_only_option_imports_that_conversation(
    cbx: Cbx, folder: Path, row_counts: Callable[[], dict[str, int]]
) -> None:
    file = str(folder / "a.json")
    [one] = lines(cbx("card", "import", file, "--only", "1", "-o", "id"))
    assert cbx("card", "export", "--box", one).json() == chat("two")
    header, row = lines(cbx("card", "import", file, "--only", "1"))
    assert (header.split(), row.split()[0], row.split()[-1]) == (
        ["#", "BOX", "CARDS", "NEW", "TITLE"],
        "1",
        "two",
    )
    before = row_counts()
    result = cbx("card", "import", file, "--only", "2")
    assert (result.code, result.err) == (
        4,
        "error: unknown conversation 2: the file has 2\nhint: pass --only with a number from 0 to 1; nothing was imported\n",
    )
    assert row_counts() == before
    # The rest comes beside it, and the box of the one stays.
    assert lines(cbx("card", "import", file, "-o", "id"))[1] == one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["a.json", "deep/c.json", "--only", "0"],
            "--only requires exactly one file and cannot be combined with --follow",
        ),
        (
            ["a.json", "--only", "0", "--follow"],
            "--only requires exactly one file and cannot be combined with --follow",
        ),
        (["a.json", "deep/c.json", "--follow"], "--follow takes one file"),
    ],
)
def test_contradictory_arguments_are_refused(
    cbx: Cbx, folder: Path, arguments: list[str], message: str
) -> None:
    given = [str(folder / each) if each.endswith(".json") else each for each in arguments]
    result = cbx("card", "import", *given)
    assert (result.code, result.err.splitlines()[0]) == (2, f"error: {message}")


def test_a_folder_without_conversation_files_is_refused(cbx: Cbx, tmp_path: Path) -> None:
    result = cbx("card", "import", str(tmp_path))
    assert result.code == 4
    assert "has no file that ends in .json, .jsonl" in result.err


def test_a_conversation_without_messages_creates_no_box(cbx: Cbx, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(json.dumps([chat(), chat("one")]))
    result = cbx("card", "import", str(tmp_path / "f.json"), "-o", "json")
    assert [box["index"] for box in json.loads(succeed(result))["boxes"]] == [1]
    told = f"skipped 1 conversation without messages: {tmp_path}/f.json[0]"
    assert f"1 conversation, 1 card, 1 new\n{told}\n" in result.err
    (tmp_path / "f.json").write_text('{"messages": []}')
    assert cbx("card", "import", str(tmp_path / "f.json"), "-o", "json").json()["boxes"] == []


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (json.dumps({"samples": [{"id": 1}, chat("one"), {"messages": []}]}), ("--at", "samples.messages")),
        (json.dumps({"eval": {"run_id": "r"}, "samples": [{"id": 1}, chat("one"), chat()]}), ()),
        (json.dumps({"agents": [chat(), chat("one"), {"messages": None}], "tools": []}), ()),
        (
            json.dumps(
                {"attempts": [{}, {"trajectory": [], "history": chat("one")["messages"]}, {"history": []}]}
            ),
            (),
        ),
    ],
)
def test_conversations_without_messages_do_not_stop_the_others(
    cbx: Cbx, tmp_path: Path, text: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "f.json").write_text(text)
    result = cbx("card", "import", str(tmp_path / "f.json"), "-o", "json", *options)
    assert [box["index"] for box in json.loads(succeed(result))["boxes"]] == [1]
    told = f"skipped 2 conversations without messages, the first at {tmp_path}/f.json: "
    assert f"1 conversation, 1 card, 1 new\n{told}" in result.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"mesages": chat("two")["messages"]}, "FILE:2: no list of messages at 'messages'"),
        (
            {"messsages": {"all": chat("two")["messages"]}},
            "FILE:2: no list of messages at 'messages'",
        ),
        ({"messages": "two"}, "FILE:2: no list of messages at 'messages'"),
        ({"messages": None, "mesages": chat("two")["messages"]}, None),
        ({"id": 1, "mesages": []}, None),
    ],
)
def test_a_mistyped_message_key_is_refused(
    cbx: Cbx, tmp_path: Path, line: dict[str, Any], told: str | None
) -> None:
    file = tmp_path / "typo.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in (chat("one"), line, chat("three"))))
    result = cbx("card", "import", str(file), "--at", "messages", "-o", "json")
    if told is None:
        assert result.err.endswith(f"skipped 1 conversation without messages: {file}:2\n")
        assert [box["index"] for box in json.loads(succeed(result))["boxes"]] == [0, 2]
        return
    assert (result.code, result.error["message"]) == (4, told.replace("FILE", str(file)))
    if "messages" not in line:
        assert result.error["hint"] == f"its keys are {next(iter(line))!r}; nothing was imported"


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (
            lambda messages: {"eval": {"run_id": "r"}, "samples": [chat("one"), {"mesages": messages}]},
            "samples[1]: an Inspect sample must have messages",
        ),
        (
            lambda messages: {"agents": [chat("one"), {"mesages": messages}], "tools": []},
            "agents[1]: a Letta agent must have messages",
        ),
        (
            lambda messages: {
                "attempts": [{"trajectory": [], "history": messages}, {"histroy": messages}],
            },
            "attempts[1]: a SWE-agent attempt must have a history",
        ),
    ],
)
def test_a_mistyped_message_key_in_an_agent_file_is_refused(
    cbx: Cbx, tmp_path: Path, of: Callable[[list[Any]], dict[str, Any]], told: str
) -> None:
    file = tmp_path / "f.json"
    file.write_text(json.dumps(of(chat("two")["messages"])))
    result = cbx("card", "import", str(file), "-o", "json")
    assert (result.code, result.error["message"]) == (4, f"{file}: {told}")
    assert result.error["hint"].startswith("its keys are '")


def test_a_session_with_only_events_creates_no_box(
    cbx: Cbx, tmp_path: Path, row_counts: Callable[[], dict[str, int]]
) -> None:
    (tmp_path / "s.jsonl").write_text('{"type": "summary", "summary": "Shop", "sessionId": "s"}\n' * 2)
    before = row_counts()
    result = cbx("card", "import", str(tmp_path / "s.jsonl"), "-o", "id")
    assert (result.code, result.out) == (0, "")
    left_out = f"skipped 1 conversation without messages: {tmp_path}/s.jsonl"
    assert result.err.endswith(f"0 conversations, 0 cards, 0 new\n{left_out}\n")
    assert row_counts() == before


def test_cards_have_the_time_of_their_line_and_a_command_is_not_the_title(cbx: Cbx, tmp_path: Path) -> None:
    said = "<command-message>review is running…</command-message>\n<command-name>/review</command-name>"
    around = {"type": "user", "sessionId": "s"}
    session = [
        {
            **around,
            "uuid": "a",
            "timestamp": "2025-03-01T10:00:00.000Z",
            "message": {"role": "user", "content": said},
        },
        {
            **around,
            "uuid": "b",
            "timestamp": "9000-03-01T10:00:00.000Z",
            "message": {"role": "user", "content": "Go"},
        },
    ]
    (tmp_path / "s.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in session))
    [box] = cbx("card", "import", str(tmp_path / "s.jsonl"), "-o", "json").json()["boxes"]
    assert box["title"] == "/review"
    cards = cbx("card", "list", "--limit", "0", "--sort", "created", "-o", "json").json()
    created = sorted(card["created_at"] for card in cards)
    assert created[0].startswith("2025-03-01T10:00:00")
    assert not created[1].startswith("9000")  # nothing is written in the future


@pytest.mark.parametrize(
    "preamble",
    [
        "<environment_context>\n  <cwd>/home/ann</cwd>\n</environment_context>",
        "<user_instructions>\n\nBe brief.\n\n</user_instructions>",
        "# AGENTS.md instructions for /home/ann\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>",
        "# AGENTS.md instructions\n\n<INSTRUCTIONS>\n<b>Be brief.</b>\n</INSTRUCTIONS>",
        "<turn_aborted>\nThe user interrupted it.\n</turn_aborted>",
        '<hook_prompt hook_run_id="h">Go on.</hook_prompt>',
        "# Context from my IDE setup:\n\n## Active file: a.py\n\n## My request for Codex:",
    ],
)
def test_a_codex_preamble_is_not_the_title(cbx: Cbx, tmp_path: Path, preamble: str) -> None:
    def said(*texts: str) -> dict[str, Any]:
        content = [{"type": "input_text", "text": text} for text in texts]
        item = {"type": "message", "role": "user", "content": content}
        return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": item}

    for number, items in enumerate(([said(preamble), said("Mend it")], [said(preamble, "Mend it")])):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(f"{json.dumps(item)}\n" for item in items))
        [box] = json.loads(succeed(cbx("card", "import", str(file), "-o", "json")))["boxes"]
        assert box["title"] == "Mend it"


def test_links_to_files_outside_the_folder_are_skipped(cbx: Cbx, folder: Path, tmp_path: Path) -> None:
    """Whoever packed it would choose which of our files are read."""
    (folder / "b.jsonl").unlink()
    (tmp_path / "ours.json").write_text(json.dumps(chat("private")))
    (folder / "x.json").symlink_to(tmp_path / "ours.json")
    (folder / "y.json").symlink_to("a.json")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "0.json").write_text('{"id": 0, "source": "user", "action": "message"}')
    (folder / "deep" / "events").symlink_to(tmp_path / "events")
    result = cbx("card", "import", str(folder), "-o", "json")
    titles = [box["title"] for box in json.loads(succeed(result))["boxes"]]
    assert titles == ["one", "two", "one", "two", "three"]
    assert f"{folder}/x.json is skipped: it is a link to a file outside the folder" in result.err
