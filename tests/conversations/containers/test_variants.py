"""What files of agents may be besides the usual: older versions, folders, other packers, messages of odd kinds."""

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.conversations.containers import packed_files
from tests.cli.conftest import lines as lines_of
from tests.conftest import Cbx
from tests.conversations.containers.test_containers import CALL, EVAL, SAMPLE, lines

zstd = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List."}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "gA"},
    {"type": "function_call", "name": "ls", "arguments": '{"path":"."}', "call_id": "c1"},
    {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One file."}]},
]
START = {"id": "s1", "timestamp": "2025-06-01T10:00:00.000Z", "instructions": "Be brief."}
STATE = {"record_type": "state"}
OLD_CODEX = lines({**START, "git": {}}, STATE, ITEMS[0], *ITEMS[1:3], STATE, *ITEMS[3:])
OLDEST_CODEX = json.dumps({"session": START, "items": ITEMS}, indent=2)
SAID = [("system", "Be brief."), ("user", "List."), ("assistant", None), ("tool", "a.txt")]


def box_of(cbx: Cbx, path: Path) -> str:
    return lines_of(cbx("card", "import", str(path), "-o", "id"))[0]


def messages_of(cbx: Cbx, path: Path, provider: str = "openai") -> list[dict[str, Any]]:
    """The messages that a provider gets of a file's first conversation."""
    found = cbx("render", "--box", box_of(cbx, path), "--format", provider, "-o", "json").json()["messages"]
    assert isinstance(found, list)
    return found


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", [OLD_CODEX, OLDEST_CODEX], ids=["lines of items", "one object"])
def test_older_codex_rollouts_are_read(cbx: Cbx, tmp_path: Path, text: str) -> None:
    path = written(tmp_path, "rollout", text)
    assert cbx("card", "import", str(path)).err.startswith("recognized as codex: ")
    said = [(each["role"], each.get("content")) for each in messages_of(cbx, path)]
    assert said == [*SAID, ("assistant", "One file.")]


def test_a_zstandard_file_and_the_plain_file_give_the_same_box(cbx: Cbx, tmp_path: Path) -> None:
    packed = zstd.compress(OLD_CODEX[:200].encode()) + zstd.compress(OLD_CODEX[200:].encode())  # two frames
    (tmp_path / "rollout.jsonl.zst").write_bytes(packed)
    box = box_of(cbx, written(tmp_path, "plain.jsonl", OLD_CODEX))
    assert box_of(cbx, tmp_path / "rollout.jsonl.zst") == box
    assert lines_of(cbx("card", "import", str(tmp_path), "-o", "id")) == [box]  # one of a folder, too


def log(*, damaged: bool = False) -> bytes:
    """A log of Inspect as its newer versions pack it."""
    members = {"samples/1_epoch_1.json": SAMPLE, "header.json": {"version": 2, "eval": EVAL}}
    data, central = b"", b""
    for name, value in members.items():
        text = json.dumps(value).encode()
        found = zipfile.ZipInfo(name)
        found.compress_type, found.file_size, found.header_offset = (
            packed_files.ZSTD_METHOD,
            len(text),
            len(data),
        )
        packed = zstd.compress(text)
        found.compress_size, found.CRC = len(packed), zipfile.crc32(text) + damaged  # type: ignore[attr-defined]
        data += found.FileHeader() + packed
        # APPNOTE.TXT 4.3.12
        central += b"PK\1\2" + (20).to_bytes(2, "little") + found.FileHeader()[4:30]
        central += bytes(10) + found.header_offset.to_bytes(4, "little") + name.encode()
    count = len(members).to_bytes(2, "little")
    sizes = len(central).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return data + central + b"PK\5\6" + bytes(4) + count + count + sizes + bytes(2)


def test_a_zstandard_log_is_read(cbx: Cbx, tmp_path: Path) -> None:
    (tmp_path / "log.eval").write_bytes(log())
    assert [each["role"] for each in messages_of(cbx, tmp_path / "log.eval")][:2] == ["system", "user"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("log.eval", log(damaged=True), "PATH cannot be unpacked: "),
        ("rollout.jsonl.zst", zstd.compress(OLD_CODEX.encode())[:-9], "cannot decompress PATH: "),
        ("rollout.jsonl.zst", packed_files.ZSTD_MAGIC + b"no frame of it", "cannot decompress PATH: "),
    ],
    ids=["another sum", "cut", "no frame"],
)
def test_damaged_zstandard_files_are_refused(
    cbx: Cbx, tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    result = cbx("card", "import", str(tmp_path / name))
    assert result.code == 4
    assert result.err.startswith(f"error: {message.replace('PATH', str(tmp_path / name))}")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python has it itself")
def test_the_error_names_the_missing_zstd_extra(
    cbx: Cbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    (tmp_path / "log.eval").write_bytes(log())
    result = cbx("card", "import", str(tmp_path / "log.eval"))
    assert result.code == 4
    assert "the extra 'zstd'" in result.err
    assert "pip install 'cardbox-cli[zstd]'" in result.err


def test_a_small_packed_file_is_unpacked_in_bounded_chunks() -> None:
    packed = zstd.compress(bytes(50 << 20))  # some KiB
    rest = [packed[at : at + 4096] for at in range(0, len(packed), 4096)]
    sizes = [len(each) for each in packed_files.unpack_chunks(lambda _: rest.pop(0) if rest else b"", "f")]
    assert sum(sizes) == 50 << 20
    assert max(sizes) <= 1 << 16


ANSWER = {
    "id": "r1",
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": "I look twice.",
                "tool_calls": [CALL, {**CALL, "id": "c2"}],
            }
        }
    ],
}
_OF_ANSWER = {"function_name": "ls", "model_response": ANSWER, "total_calls_in_response": 2}


def event(number: int, source: str = "agent", **parts: Any) -> dict[str, Any]:
    return {"id": number, "timestamp": f"2026-01-02T03:04:{number:02}", "source": source, **parts}


def calling(number: int, call_id: str, **parts: Any) -> dict[str, Any]:
    return event(number, tool_call_metadata={**_OF_ANSWER, "tool_call_id": call_id}, **parts)


EVENTS = [
    event(0, action="system", args={"content": "Be brief."}),
    event(1, "user", action="message", args={"content": "See:", "image_urls": ["https://example.com/a.png"]}),
    event(2, action="condensation", args={"pruned_event_ids": [9]}),
    calling(3, "c1", action="run", args={"command": "ls", "is_input": False, "thought": "I look twice."}),
    calling(4, "c2", action="run", args={"command": "ls", "is_input": False, "thought": ""}),
    calling(5, "c1", observation="run", content="a.txt", extras={}),
    calling(6, "c2", observation="run", content="a.txt", extras={}),
    *(event(number, observation="think", content="Hm.") for number in range(7, 11)),
    calling(11, "c9", action="finish", args={"final_thought": "Done.", "thought": ""}),
]


def test_a_folder_of_events_is_one_growing_conversation(cbx: Cbx, tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    for name, value in {"metadata.json": {"title": "x"}, "base_state.json": {}}.items():
        written(sessions / "abc", name, json.dumps(value))
    for each in EVENTS[:5]:
        written(sessions / "abc" / "events", f"{each['id']}.json", json.dumps(each, indent=1))
    first = lines_of(cbx("card", "import", str(sessions), "-o", "id"))
    for each in EVENTS[5:]:
        written(sessions / "abc" / "events", f"{each['id']}.json", json.dumps(each))
    assert lines_of(cbx("card", "import", str(sessions / "abc" / "events"), "-o", "id")) == first

    [system, see, called, one, two, *thoughts, last] = messages_of(cbx, sessions / "abc" / "events")
    assert system["content"] == "Be brief."
    assert [part["type"] for part in see["content"]] == ["text", "image_url"]
    # The calls of one answer are one message, as the model wrote them.
    assert (called["content"], [call["id"] for call in called["tool_calls"]]) == (
        "I look twice.",
        ["c1", "c2"],
    )
    assert {call["function"]["arguments"] for call in called["tool_calls"]} == {'{"path":"."}'}
    assert [one["tool_call_id"], two["tool_call_id"]] == ["c1", "c2"]
    assert len(thoughts) == 4
    assert last == {"role": "assistant", "content": "I look twice.\nDone."}


@pytest.mark.parametrize(
    ("odd", "message"), [("pipe", "it is not a regular file"), ("link", "it is a symbolic link")]
)
def test_links_and_pipes_in_a_folder_of_events_are_refused(
    cbx: Cbx, tmp_path: Path, odd: str, message: str
) -> None:
    """A named pipe would never end, a link would bring in what only we may read."""
    events = tmp_path / "abc" / "events"
    written(events, "0.json", json.dumps(EVENTS[0]))
    if odd == "pipe":
        os.mkfifo(events / "1.json")
    else:
        written(tmp_path, "ours.json", json.dumps(EVENTS[1]))
        (events / "1.json").symlink_to(tmp_path / "ours.json")
    refused = cbx("card", "import", str(events))
    assert refused.code == 4
    assert f"cannot read {events}/1.json: {message}" in refused.err


def test_the_error_names_an_unreadable_event(cbx: Cbx, tmp_path: Path) -> None:
    (tmp_path / "events" / "1.json").mkdir(parents=True)
    result = cbx("card", "import", str(tmp_path))
    assert (result.code, result.err.splitlines()[0]) == (
        4,
        f"error: cannot read {tmp_path / 'events' / '1.json'}: it is not a regular file",
    )


def test_a_folder_of_openhands_sdk_events_is_one_conversation(cbx: Cbx, tmp_path: Path) -> None:
    for number, text in enumerate(["One.", "Two."]):
        message = {"role": "user", "content": [{"type": "text", "text": text}, {"type": "image", "image_urls": ["https://example.com/a.png"]}]}  # fmt: skip
        value = {"kind": "MessageEvent", "id": f"e{number}", "source": "user", "llm_message": message}
        written(tmp_path / "c0ffee" / "events", f"event-{number:05}-e{number}.json", json.dumps(value))
    found = messages_of(cbx, tmp_path / "c0ffee" / "events")
    assert [[part["type"] for part in each["content"]] for each in found] == [["text", "image_url"]] * 2
    assert [each["content"][0]["text"] for each in found] == ["One.", "Two."]


HISTORY = [
    {"role": "user", "content": [{"type": "text", "text": "See."}, {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}], "agent": "main", "message_type": "observation"},
    {"role": "assistant", "content": "Ok.", "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}], "tool_calls": [CALL], "message_type": "action"},
    {"role": "tool", "content": "a.txt", "tool_call_ids": ["c1"], "message_type": "observation"},
]  # fmt: skip


def test_swe_agent_attempts_and_demonstrations_are_read(cbx: Cbx, tmp_path: Path) -> None:
    run = {"trajectory": [], "history": HISTORY, "info": {}}
    demonstration = written(tmp_path, "demo.traj", json.dumps({"history": HISTORY}))
    see, called, result = messages_of(cbx, demonstration)
    assert see["content"][1]["type"] == "image_url"
    assert result["tool_call_id"] == called["tool_calls"][0]["id"] == "c1"
    thought = messages_of(cbx, demonstration, "anthropic")[1]["content"][0]
    assert thought == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    others = [{**run, "history": HISTORY[:number]} for number in (1, 2)]
    tried = written(tmp_path, "tried.traj", json.dumps({"attempts": others}))
    assert len(lines_of(cbx("card", "import", str(tried), "-o", "id"))) == 2
    chosen = written(tmp_path, "chosen.traj", json.dumps({"attempts": [*others, run], **run}))
    assert lines_of(cbx("card", "import", str(chosen), "-o", "id")) == [box_of(cbx, demonstration)]


def test_pi_commands_summaries_and_custom_messages_are_sent(cbx: Cbx, tmp_path: Path) -> None:
    def line(own: str, parent: str | None, **parts: Any) -> dict[str, Any]:
        return {"id": own, "parentId": parent, "timestamp": "2026-01-02T03:04:06.000Z", **parts}

    def run(**parts: Any) -> dict[str, Any]:
        return {"role": "bashExecution", "command": "ls", "cancelled": False, "truncated": False, **parts}

    path = written(
        tmp_path,
        "s.jsonl",
        lines(
            {
                "type": "session",
                "version": 3,
                "id": "s1",
                "timestamp": "2026-01-02T03:04:05.000Z",
                "cwd": "/w",
            },
            line("a", None, type="message", message=run(output="a.txt", exitCode=2)),
            line("b", "a", type="message", message=run(output="secret", exitCode=0, excludeFromContext=True)),
            line("c", "b", type="branch_summary", fromId="a", summary="Tried it."),
            line(
                "d", "c", type="custom_message", customType="x", content=[{"type": "text", "text": "Extra."}]
            ),
            line("e", "d", type="compaction", summary="Long ago.", firstKeptEntryId="a", tokensBefore=9),
            line("f", "e", type="message", message={"role": "hookMessage", "content": "Hooked."}),
        ),
    )
    texts = [each["content"] for each in messages_of(cbx, path)]
    assert texts[0] == "Ran `ls`\n```\na.txt\n```\n\nCommand exited with code 2"
    assert "Tried it." in texts[1]
    assert texts[2:] == ["Extra.", "Hooked."]
