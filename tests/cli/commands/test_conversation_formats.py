"""Anthropic and Claude Code at the command line: import, export, render, and what is said on the way."""

import json
from pathlib import Path

from tests.anthropic_types import check_body
from tests.conftest import Cbx
from tests.conversations.anthropic_messages import MESSAGES, TEXT, THINKING, USE, assistant
from tests.conversations.test_claude_code import LINES, lines_in, text_of_lines


def test_an_anthropic_conversation_is_imported_and_exported(cbx: Cbx, tmp_path: Path) -> None:
    document = {"system": "Be kind.", "messages": [MESSAGES["text"], assistant(THINKING, TEXT, USE)]}
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(document))
    imported = cbx("card", "import", str(file), "-o", "id")
    box = imported.out.strip()
    assert (
        imported.err
        == "recognized as anthropic: 'system' is next to the messages\n1 conversation, 4 cards, 4 new\n"
    )
    assert cbx("card", "import", str(file), "--from", "anthropic").err == "1 conversation, 4 cards, 0 new\n"
    assert cbx("card", "export", "--box", box, "--to", "anthropic").json() == document
    rendered = cbx("render", "--box", box, "--format", "anthropic", "--model", "m")
    assert rendered.json() == {"model": "m", "max_tokens": 4096, **document}
    check_body(rendered.json())
    explained = cbx("render", "--box", box, "--format", "anthropic", "--explain", "-o", "json").json()
    assert explained["request"] == {"max_tokens": 4096, **document}
    assert len(explained["explanation"]["messages"]) == 4
    plain = cbx("render", "--box", box, "--format", "text").out
    assert "6 times 7" not in plain
    assert "Let me look." in plain


def test_a_claude_code_session_is_imported_and_exported(cbx: Cbx, tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    file.write_text(text_of_lines(LINES))
    imported = cbx("card", "import", str(file), "-o", "id")
    boxes = imported.out.split()
    assert (
        imported.err
        == "recognized as claude-code: line 1: a line has a type and 'leafUuid'\n3 conversations, 22 cards, 22 new\n"
    )
    back = [
        line
        for box in boxes
        for line in lines_in(cbx("card", "export", "--box", box, "--to", "claude-code").out)
    ]
    assert sorted(map(json.dumps, map(sorted, back))) == sorted(map(json.dumps, map(sorted, LINES)))
    assert cbx("box", "show", boxes[1], "-o", "json").json()["parent_ids"] == boxes[:1]
    check_body(cbx("render", "--box", boxes[0], "--format", "anthropic", "--model", "m").json())


def test_a_malformed_line_is_reported_with_its_position(cbx: Cbx, tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    file.write_text(text_of_lines(LINES[:2]) + '{"type": "user", \n')
    result = cbx("card", "import", str(file), "--from", "claude-code")
    assert result.code == 4
    assert result.err.splitlines()[0] == (
        f"error: {file}:3:18: not JSON: Expecting property name enclosed in double quotes"
    )


PROVIDERS = "openai, anthropic, openai-responses, gemini, bedrock-converse"
AGENTS = "codex, inspect, letta, openhands, pi, swe-agent, claude-code"
READ = f"{PROVIDERS}, {AGENTS}, langchain, sharegpt, otel, http"


def test_unknown_formats_are_refused_with_the_known_ones(cbx: Cbx) -> None:
    for arguments, known in (
        (("card", "import", "x", "--from", "nope"), f"{READ}, auto"),
        (("card", "export", "--box", "x", "--to", "nope"), f"{PROVIDERS}, claude-code, langchain"),
        (("render", "--box", "x", "--format", "nope"), f"{PROVIDERS}, text, html"),
    ):
        result = cbx(*arguments)
        assert (result.code, result.err.splitlines()[1]) == (2, f"hint: formats are {known}")
