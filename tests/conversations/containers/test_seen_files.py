"""Shapes that were found in files of the programs' own repositories: what their tests read, and examples."""

import json
from pathlib import Path

from tests.conftest import Cbx
from tests.conversations.containers.test_containers import lines
from tests.conversations.containers.test_variants import (
    HISTORY,
    ITEMS,
    START,
    STATE,
    box_of,
    event,
    messages_of,
    written,
)


def test_each_history_of_an_openhands_evaluation_is_a_conversation(cbx: Cbx, tmp_path: Path) -> None:
    runs = [
        {
            "instance_id": f"run-{word}",
            "history": [event(0, "user", action="message", args={"content": word})],
        }
        for word in ("one", "two")
    ]
    path = written(tmp_path, "output.jsonl", lines(*runs))
    answer = cbx("card", "import", str(path), "-o", "json")
    assert "recognized as openhands: line 1: in the 'history'" in answer.err
    assert [box["title"] for box in answer.json()["boxes"]] == ["run-one", "run-two"]
    assert messages_of(cbx, path) == [{"role": "user", "content": "one"}]
    odd = written(tmp_path, "odd.jsonl", lines(*runs, {"instance_id": "run-three"}))
    refused = cbx("card", "import", str(odd), "--from", "openhands")
    assert refused.code == 4
    assert "odd.jsonl:3: a line of an OpenHands evaluation" in refused.err


def test_a_default_environment_is_not_a_title(cbx: Cbx, tmp_path: Path) -> None:
    def title(environment: str) -> str:
        run = {"environment": environment, "trajectory": [], "history": HISTORY[1:]}
        path = written(tmp_path, f"{environment}.traj", json.dumps(run))
        return str(cbx("card", "import", str(path), "-o", "json").json()["boxes"][0]["title"])

    assert [title(each) for each in ("swe_main", "main", "own")] == ["None", "None", "own"]


def test_internal_codex_items_are_not_sent_to_a_model(cbx: Cbx, tmp_path: Path) -> None:
    thought = {**ITEMS[1], "content": None}
    snapshot = {"type": "ghost_snapshot", "ghost_commit": {"id": "c1"}}
    path = written(
        tmp_path, "rollout", lines({**START, "git": {}}, STATE, ITEMS[0], thought, snapshot, ITEMS[4])
    )
    box = box_of(cbx, path)
    assert cbx("render", "--box", box, "--format", "openai-responses", "--check").err == "nothing found\n"
    sent = cbx("render", "--box", box, "--format", "openai-responses", "-o", "json").json()["input"]
    assert [each["type"] for each in sent[-3:]] == ["message", "reasoning", "message"]


def test_an_older_pi_session_and_a_single_message_are_read(cbx: Cbx, tmp_path: Path) -> None:
    time = "2025-12-08T23:21:28.257Z"
    called = {
        "role": "assistant",
        "content": [{"type": "toolCall", "id": "c1", "name": "ls", "arguments": {}}],
        "api": "anthropic-messages",
        "provider": "anthropic",
        "stopReason": "toolUse",
    }
    answered = {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": "ls",
        "content": "a.txt",
        "isError": False,
    }
    said = [{"role": "user", "content": "List."}, called, answered]
    path = written(
        tmp_path,
        "old.jsonl",
        lines(
            {"type": "session", "id": "s1", "timestamp": time, "cwd": "/w"},
            *({"type": "message", "timestamp": time, "message": each} for each in said),
            {
                "type": "compaction",
                "timestamp": time,
                "summary": "Hm.",
                "firstKeptEntryIndex": 1,
                "tokensBefore": 9,
            },
        ),
    )
    assert [each["role"] for each in messages_of(cbx, path)] == ["user", "assistant", "tool"]
    alone = written(tmp_path, "alone.json", json.dumps(called))
    assert "recognized as pi: " in cbx("card", "import", str(alone)).err
    assert messages_of(cbx, alone)[0]["tool_calls"][0]["id"] == "c1"
