"""Files of agents and of their evaluations that hold conversations inside."""

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cardbox_cli.conversations.containers.packed_files import open_log
from cardbox_cli.conversations.formats.registry import choose_format
from cardbox_cli.errors import InvalidConversation
from tests.cli.conftest import lines as lines_of
from tests.cli.conftest import succeed
from tests.conftest import Cbx
from tests.conversations.reading import documents_in, entries_of

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path":"."}'}}


def lines(*values: Any) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in values)


CODEX = lines(
    {"timestamp": "2026-01-02T03:04:05.000Z", "type": "session_meta", "payload": {"id": "s1", "cwd": "/w", "instructions": "Be brief."}},
    {"timestamp": "2026-01-02T03:04:06.000Z", "type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List."}]}},
    {"timestamp": "2026-01-02T03:04:07.000Z", "type": "event_msg", "payload": {"type": "user_message", "message": "List."}},
    {"timestamp": "2026-01-02T03:04:08.000Z", "type": "response_item", "payload": {"type": "function_call", "name": "ls", "arguments": '{"path":"."}', "call_id": "c1"}},
    {"timestamp": "2026-01-02T03:04:09.000Z", "type": "response_item", "payload": {"type": "function_call_output", "call_id": "c1", "output": "a.txt"}},
    {"timestamp": "2026-01-02T03:04:10.000Z", "type": "response_item", "payload": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One file."}]}},
)  # fmt: skip
PI = lines(
    {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-02T03:04:05.000Z", "cwd": "/w"},
    {"type": "message", "id": "a", "parentId": None, "timestamp": "2026-01-02T03:04:06.000Z", "message": {"role": "user", "content": "List.", "timestamp": 1}},
    {"type": "message", "id": "x", "parentId": "a", "timestamp": "2026-01-02T03:04:06.500Z", "message": {"role": "assistant", "content": [{"type": "text", "text": "Not this."}]}},
    {"type": "message", "id": "b", "parentId": "a", "timestamp": "2026-01-02T03:04:07.000Z", "message": {"role": "assistant", "provider": "anthropic", "content": [{"type": "thinking", "thinking": "Hm.", "thinkingSignature": "c2ln"}, {"type": "toolCall", "id": "c1", "name": "ls", "arguments": {"path": "."}}]}},
    {"type": "message", "id": "c", "parentId": "b", "timestamp": "2026-01-02T03:04:08.000Z", "message": {"role": "toolResult", "toolCallId": "c1", "toolName": "ls", "content": [{"type": "text", "text": "a.txt"}], "isError": False}},
    {"type": "message", "id": "d", "parentId": "c", "timestamp": "2026-01-02T03:04:09.000Z", "message": {"role": "assistant", "content": [{"type": "text", "text": "One file."}]}},
)  # fmt: skip
SWE_AGENT = json.dumps(
    {
        "trajectory": [{"action": "ls", "observation": "a.txt", "thought": "", "state": {}}],
        "history": [
            {"role": "system", "content": "Be brief.", "agent": "main", "message_type": "system_prompt"},
            {"role": "user", "content": [{"type": "text", "text": "List."}], "agent": "main", "message_type": "observation"},
            {"role": "assistant", "content": "", "thought": "", "action": "ls", "agent": "main", "tool_calls": [CALL], "message_type": "action"},
            {"role": "tool", "content": [{"type": "text", "text": "a.txt"}], "agent": "main", "tool_call_ids": ["c1"], "message_type": "observation"},
            {"role": "assistant", "content": "One file.", "agent": "main", "message_type": "action"},
        ],
        "info": {"exit_status": "submitted"},
    }
)  # fmt: skip
_METADATA = {"function_name": "ls", "tool_call_id": "c1"}
OPENHANDS = json.dumps(
    [
        {"id": 0, "timestamp": "2026-01-02T03:04:05.000000", "source": "agent", "message": "Be brief.", "action": "system", "args": {"content": "Be brief."}},
        {"id": 1, "timestamp": "2026-01-02T03:04:06.000000", "source": "user", "message": "List.", "action": "message", "args": {"content": "List."}},
        {"id": 2, "timestamp": "2026-01-02T03:04:06.100000", "source": "environment", "message": "", "observation": "agent_state_changed", "content": "", "extras": {"agent_state": "running"}},
        {"id": 3, "timestamp": "2026-01-02T03:04:07.000000", "source": "agent", "message": "ls", "action": "run", "args": {"path": ".", "thought": ""}, "tool_call_metadata": _METADATA},
        {"id": 4, "timestamp": "2026-01-02T03:04:08.000000", "source": "agent", "cause": 3, "message": "done", "observation": "run", "content": "a.txt", "extras": {}, "tool_call_metadata": _METADATA},
        {"id": 5, "timestamp": "2026-01-02T03:04:09.000000", "source": "agent", "message": "One file.", "action": "message", "args": {"content": "One file."}},
    ]
)  # fmt: skip
OPENHANDS_SDK = lines(
    {"kind": "SystemPromptEvent", "id": "e0", "timestamp": "2026-01-02T03:04:05", "source": "agent", "system_prompt": {"type": "text", "text": "Be brief."}, "tools": []},
    {"kind": "MessageEvent", "id": "e1", "timestamp": "2026-01-02T03:04:06", "source": "user", "llm_message": {"role": "user", "content": [{"type": "text", "text": "List."}]}},
    {"kind": "ActionEvent", "id": "e2", "timestamp": "2026-01-02T03:04:07", "source": "agent", "thought": [], "action": {"path": "."}, "tool_name": "ls", "tool_call_id": "c1", "tool_call": {"id": "c1", "name": "ls", "arguments": '{"path":"."}'}, "llm_response_id": "r1"},
    {"kind": "ObservationEvent", "id": "e3", "timestamp": "2026-01-02T03:04:08", "source": "environment", "tool_name": "ls", "tool_call_id": "c1", "action_id": "e2", "observation": {"content": [{"type": "text", "text": "a.txt"}]}},
    {"kind": "MessageEvent", "id": "e4", "timestamp": "2026-01-02T03:04:09", "source": "agent", "llm_message": {"role": "assistant", "content": [{"type": "text", "text": "One file."}]}},
)  # fmt: skip
SAMPLE = {
    "id": 1,
    "epoch": 1,
    "input": "List.",
    "messages": [
        {"id": "m0", "role": "system", "content": "Be brief."},
        {"id": "m1", "role": "user", "source": "input", "content": "attachment://abc"},
        {"id": "m2", "role": "assistant", "content": [{"type": "reasoning", "reasoning": "Hm.", "signature": "c2ln"}], "tool_calls": [{"id": "c1", "function": "ls", "arguments": {"path": "."}, "type": "function"}]},
        {"id": "m3", "role": "tool", "content": "a.txt", "tool_call_id": "c1", "function": "ls"},
        {"id": "m4", "role": "assistant", "content": "One file."},
    ],
    "attachments": {"abc": "List."},
}  # fmt: skip
EVAL = {"task": "files", "run_id": "r1", "model": "openai/gpt-4o"}
INSPECT = json.dumps(
    {"version": 2, "status": "success", "eval": EVAL, "samples": [SAMPLE, {**SAMPLE, "epoch": 2}]}
)
LETTA = json.dumps(
    {
        "agents": [
            {
                "id": "agent-0",
                "name": "Clerk",
                "tool_ids": ["tool-0"],
                "messages": [
                    {"id": "message-0", "role": "system", "content": [{"type": "text", "text": "Be brief."}], "created_at": "2026-01-02T03:04:05+00:00"},
                    {"id": "message-1", "role": "user", "content": [{"type": "text", "text": "List."}], "created_at": "2026-01-02T03:04:06+00:00"},
                    {"id": "message-2", "role": "assistant", "content": [], "tool_calls": [CALL], "created_at": "2026-01-02T03:04:07+00:00"},
                    {"id": "message-3", "role": "tool", "content": [{"type": "text", "text": "a.txt"}], "tool_call_id": "c1", "created_at": "2026-01-02T03:04:08+00:00"},
                    {"id": "message-4", "role": "assistant", "content": [{"type": "text", "text": "One file."}], "created_at": "2026-01-02T03:04:09+00:00"},
                ],
            }
        ],
        "blocks": [],
        "tools": [{"id": "tool-0", "name": "ls", "json_schema": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}],
    }
)  # fmt: skip


class Case(NamedTuple):
    """A file, and the types of the cards that its first conversation makes beyond those of all."""

    text: str
    format: str
    more: tuple[str, ...] = ()
    has_times: bool = True


CASES = {
    "codex": Case(CODEX, "codex", ("session.event", "session.event")),
    "pi": Case(PI, "pi", ("session.event", "agent.reasoning")),
    "swe-agent": Case(SWE_AGENT, "swe-agent", has_times=False),
    "openhands": Case(OPENHANDS, "openhands", ("session.event",)),
    "openhands of the SDK": Case(OPENHANDS_SDK, "openhands"),
    "inspect": Case(INSPECT, "inspect", ("agent.reasoning",), has_times=False),
    "letta": Case(LETTA, "letta", ("sys.tools",)),
}
SAID = [("user", "List."), ("assistant", ""), ("tool", "a.txt"), ("assistant", "One file.")]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def imported(cbx: Cbx, path: Path, *options: str) -> str:
    return lines_of(cbx("card", "import", str(path), "-o", "id", *options))[0]


def test_each_container_is_recognized_and_renders_its_conversation(
    cbx: Cbx, tmp_path: Path, case: Case
) -> None:
    path = tmp_path / "file"
    path.write_text(case.text)
    result = cbx("card", "import", str(path), "-o", "id")
    box = succeed(result).splitlines()[0]
    assert result.err.startswith(f"recognized as {case.format}: ")
    messages = cbx("render", "--box", box, "--format", "openai", "-o", "json").json()["messages"]
    said = [(each["role"], _text(each.get("content"))) for each in messages if each["role"] != "system"]
    assert said == SAID
    [call] = next(each["tool_calls"] for each in messages if each.get("tool_calls"))
    assert (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) == ("c1", "ls", {"path": "."})  # fmt: skip
    assert case.format == "pi" or messages[0] == {"role": "system", "content": "Be brief."}
    assert succeed(cbx("render", "--box", box, "--format", "openai", "--check")) is not None
    assert " 0 new" in cbx("card", "import", str(path)).err


def _text(content: Any) -> str:
    return "".join(part["text"] for part in content) if isinstance(content, list) else content or ""


def test_every_entry_is_stored_with_its_time(case: Case) -> None:
    documents = documents_in(case.text)
    conversations = list(choose_format(None, documents).format.read(documents))
    cards = [each.slot.card for each in entries_of(conversations[0])]
    types = [card.type for card in cards if card]
    for expected in case.more:
        types.remove(expected)
    system = [] if case.format == "pi" else ["sys.rendered_prompt"]
    said = ["task.instruction", "agent.thought", "tool.result", "agent.thought"]
    assert types == [*system, *said]
    times = [entry.created_at for entry in conversations[0].entries]
    assert all(times) == case.has_times
    if case.has_times:
        assert times == sorted(filter(None, times))
        assert str(times[-1]).startswith("2026-01-02 03:04:")


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (OPENHANDS, {"observation": "error"}),
        (OPENHANDS_SDK, {"observation": {"is_error": True, "content": [{"type": "text", "text": "a.txt"}]}}),
        (OPENHANDS_SDK, {"kind": "AgentErrorEvent", "error": "a.txt"}),
    ],
)
def test_a_failed_tool_result_stays_an_error(
    cbx: Cbx, tmp_path: Path, text: str, changed: dict[str, Any]
) -> None:
    events = json.loads(text) if text.startswith("[") else [json.loads(each) for each in text.splitlines()]
    events = [{**each, **changed} if "observation" in each and "tool_call_id" in str(each) else each for each in events]  # fmt: skip
    (tmp_path / "events.json").write_text(json.dumps(events))
    box = imported(cbx, tmp_path / "events.json")
    said = cbx("render", "--box", box, "--format", "anthropic", "--model", "m", "-o", "json").json()
    [result] = [block for each in said["messages"] for block in each["content"] if "tool_use_id" in block]
    assert (result["content"], result["is_error"]) == ("a.txt", True)


def test_each_branch_of_a_session_gets_its_own_box(cbx: Cbx, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(PI)
    main, other = lines_of(cbx("card", "import", str(tmp_path / "s.jsonl"), "-o", "id"))
    assert cbx("box", "show", other, "-o", "json").json()["parent_ids"] == [main]
    assert (
        cbx("card", "export", "--box", other, "--to", "openai").json()["messages"][-1]["content"]
        == "Not this."
    )


def archive(*members: tuple[str, str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as packed:
        for name, text in members:
            packed.writestr(name, text)
    return file.getvalue()


HEADER = json.dumps({"version": 2, "status": "success", "eval": EVAL})


def test_an_eval_archive_and_its_log_give_the_same_box(cbx: Cbx, tmp_path: Path) -> None:
    packed = archive(
        ("header.json", HEADER), ("samples/1_epoch_1.json", json.dumps(SAMPLE)), ("summaries.json", "[]")
    )
    (tmp_path / "log.eval").write_bytes(packed)
    (tmp_path / "log.json").write_text(INSPECT)
    box = imported(cbx, tmp_path / "log.eval")
    assert lines_of(cbx("card", "import", str(tmp_path / "log.json"), "-o", "id"))[0] == box


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (archive(("a.json", "{}")), "PATH is not an Inspect log (no header.json inside)"),
        (archive(("header.json", "[]")), "PATH: header.json has no `eval` section; the file may be damaged"),
        (archive(("header.json", "{}"))[:60], "PATH cannot be unpacked: "),
        (
            archive(("header.json", HEADER), method=zipfile.ZIP_BZIP2),
            "PATH cannot be unpacked: 'header.json' uses bzip2, not deflate or Zstandard",
        ),
        (
            archive(("header.json", HEADER), method=zipfile.ZIP_LZMA),
            "PATH cannot be unpacked: 'header.json' uses LZMA, not deflate or Zstandard",
        ),
        (gzip.compress(CODEX.encode())[:40], "cannot decompress PATH: "),
    ],
    # An archive bears the time at which it was made, which no test's name may.
    ids=["without header", "header of nothing", "cut archive", "bzip2", "LZMA", "cut gzip"],
)
def test_damaged_archives_are_refused(cbx: Cbx, tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "log.eval"
    path.write_bytes(data)
    result = cbx("card", "import", str(path))
    assert result.code == 4
    assert result.err.startswith(f"error: {message.replace('PATH', str(path))}")


def test_an_archive_with_any_byte_changed_is_read_or_refused() -> None:
    packed = archive(("header.json", HEADER), ("samples/1_epoch_1.json", json.dumps(SAMPLE)))
    outcomes = set()
    for place, byte in enumerate(packed):
        for changed in {0, 0xFF, byte ^ 1, byte ^ 0x80}:
            damaged = io.BytesIO(packed[:place] + bytes([changed]) + packed[place + 1 :])
            try:
                with open_log(damaged, "log.eval") as log:
                    log.read()
                outcomes.add("read")
            except InvalidConversation as refused:
                outcomes.add(refused.message.split(":")[0])
    assert outcomes == {"read", "log.eval cannot be unpacked"} | {
        each for each in outcomes if each.startswith("log.eval is not an Inspect log")
    }


def test_a_gzip_file_and_the_plain_file_give_the_same_box(cbx: Cbx, tmp_path: Path, case: Case) -> None:
    (tmp_path / "plain").write_text(case.text)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(case.text.encode()))
    assert imported(cbx, tmp_path / "packed.gz") == imported(cbx, tmp_path / "plain")
