"""Files that are broken, mixed, or not what they are said to be: one line names the place, nothing is written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import Cbx

USER = {"role": "user", "content": "Hi"}
CALLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}  # fmt: skip
USES = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
CONVERSE = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}
CONTENT = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
ITEM = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
LINE = {"type": "user", "sessionId": "s", "uuid": "u", "message": USER}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
HUMAN = {"type": "human", "data": {"content": "Hi"}}
TURN = {"from": "human", "value": "Hi"}
SPAN = {"attributes": {"gen_ai.input.messages": [{"role": "user", "parts": []}]}}
PI = {"type": "session", "version": 3, "id": "s", "cwd": "/home/ann"}
PI_MESSAGE = {"type": "message", "id": "a", "parentId": None, "message": USER}
OPENHANDS = {"id": 0, "source": "agent", "action": "run", "args": {"command": "ls"}}
OPENHANDS_V1 = {"kind": "MessageEvent", "id": "e", "source": "user", "llm_message": USER}
CODEX = {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": ITEM}
INSPECT = {"version": 2, "eval": {"task": "t"}, "samples": [{"messages": [USER]}]}


def lines(*documents: Any) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in documents)


class Case(NamedTuple):
    """A file, what the error says behind its name, and the format that it is said to be in."""

    text: str
    says: str
    named: str = "auto"


CASES = {
    # broken
    "empty": Case("", " is empty"),
    "blank": Case(" \n\n", " is empty"),
    "cut": Case('{"contents": [{"role": "user", "parts": [', ":1:42: not JSON: "),
    "cut line": Case(lines(USER) + '{"role": ', ":2:10: not JSON: "),
    "a key twice": Case('{"messages": [{"role": "user", "content": "a", "content": "b"}]}', ":1:1: an object has the key 'content' twice"),
    "a key twice in a line": Case(lines(USER) + '{"role": "user", "content": "a", "role": "user"}', ":2: an object has the key 'role' twice"),
    "two values": Case('{"contents": []} {}', ":1:18: not JSON: Extra data"),
    "not UTF-8": Case("\udcff", " is not UTF-8 (byte 0)"),
    "a number": Case("3", ": no messages found"),
    "a text": Case('"hi"', ": no messages found"),
    "null": Case("null", ": no messages found"),
    "no messages": Case('{"a": [1, 2]}', ": no messages found"),
    "many keys": Case(json.dumps({"a": [USER], "b": [USER]}), ": several keys hold messages: a, b"),
    "contents beside messages": Case(json.dumps({"contents": [CONTENT], "messages": [USER]}), ": several keys hold messages: contents, messages"),
    "contents beside messages, within": Case(json.dumps({"body": {"messages": [USER], "contents": [CONTENT]}}), ": several keys hold messages: body.contents, body.messages"),
    "input beside messages": Case(json.dumps({"input": [USER], "messages": [USER]}), ": several keys hold messages: input, messages"),
    "items beside messages": Case(json.dumps({"input": [ITEM], "messages": [USER]}), ": several keys hold messages: input, messages"),
    "a strange role": Case(json.dumps([{"role": "narrator", "content": "x"}]), ": message 0: unknown role 'narrator' for format openai"),
    "no role": Case(json.dumps([USER, {"content": "x"}]), ": message 1: unknown role None for format openai"),
    "no object": Case(json.dumps({"messages": [USER, 5]}), ": message 1: a message must be an object, not a number"),
    "a role of Gemini's": Case(json.dumps({"contents": [{"role": "narrator", "parts": []}]}), ": message 0: the role 'narrator' is none of Gemini's"),
    "a content without parts": Case(json.dumps({"contents": [CONTENT, {"role": "user", "text": "Hi"}]}), ": message 1: a content is an object with a list of parts"),
    "a role of Bedrock's": Case(json.dumps({"messages": [{"role": "tool", "content": [{"text": "x"}]}], "inferenceConfig": {}}), ": message 0: the role 'tool' is none of Bedrock's"),
    "an item that is none": Case(json.dumps({"model": "m", "input": [ITEM, {"text": "x"}], "instructions": "x"}), ": message 1: an item has a type"),
    "no list of items": Case(json.dumps({"input": 5}), ": no messages found", "openai-responses"),
    "a turn that is none": Case(json.dumps({"conversations": [TURN, {"from": "gpt"}]}), ": message 1: a ShareGPT turn must have 'from' and 'value'"),
    "a span that is none": Case(json.dumps({"attributes": {"gen_ai.input.messages": "{"}}), ": gen_ai.input.messages is not a list of messages"),
    "a message of a span": Case(json.dumps({"attributes": {"gen_ai.input.messages": [{"role": "narrator", "parts": []}]}}), ": gen_ai.input.messages[0]: a message must have parts and a known role"),
    "LangChain's that is none": Case(json.dumps([HUMAN, {"type": "robot", "data": {"content": "x"}}]), ": message 1: this is not a LangChain message", "langchain"),
    "LangChain's that takes one away": Case(json.dumps([HUMAN, {"type": "remove", "data": {"content": "", "id": "1"}}]), ": message 1: this is not a LangChain message"),
    "NUL": Case(json.dumps({"contents": [{"role": "user", "parts": [{"text": "\0"}]}]}), ": message 0: parts[0].text: holds a NUL character"),
    # of several formats
    "OpenAI and Anthropic": Case(lines({"messages": [CALLS]}, {"messages": [USES]}), ":1 is in the format openai (a message has 'tool_calls'), "),
    "Anthropic and Gemini": Case(lines({"messages": [USES]}, {"contents": [CONTENT]}), ":1 is in the format anthropic (a block is of type 'tool_use'), "),
    "messages of both": Case(lines(USER, CALLS, USES), ":2 is in the format openai (a message has 'tool_calls'), "),
    "Gemini and plain": Case(lines({"contents": [CONTENT]}, {"messages": [USER]}), ":1 is in the format gemini (a message has 'parts'), "),
    "plain and Claude Code": Case(lines(USER, LINE), ":2 is in the format claude-code (a line has a type and 'sessionId'), "),
    "Claude Code and plain": Case(lines(LINE, USER), ":1 is in the format claude-code (a line has a type and 'sessionId'), "),
    "Responses and Bedrock": Case(lines({"input": [ITEM]}, {"messages": [CONVERSE]}), ":1 is in the format openai-responses (an item is of type 'function_call'), "),
    "LangChain and ShareGPT": Case(lines([HUMAN], {"conversations": [TURN]}), ":1[0] is in the format langchain (a message is of LangChain's type 'human'), "),
    "spans and messages": Case(lines(SPAN, {"messages": [CALLS]}), ":1 is in the format otel (a span has 'gen_ai.input.messages'), "),
    # requests whose messages look like those of others
    "chat and Responses": Case(lines({"model": "m", "messages": [USER], "tools": TOOLS}, {"model": "m", "input": "y"}), ":2 is in the format openai-responses ('input' is next to 'model'), "),
    "Responses and chat": Case(lines({"model": "m", "input": "y"}, {"model": "m", "messages": [USER], "tools": TOOLS}), ":1 is in the format openai-responses ('input' is next to 'model'), "),
    "chat and Responses of a batch": Case(lines({"custom_id": "1", "body": {"model": "m", "messages": [USER]}}, {"custom_id": "2", "body": {"model": "m", "input": "y"}}), ":2 is in the format openai-responses ('input' is next to 'model'), "),
    "Bedrock and Responses without a model": Case(lines({"messages": [CONVERSE]}, {"input": [USER]}), ":1 is in the format bedrock-converse (a block has 'toolUse' and no 'type'), "),
    "Bedrock and chat": Case(lines({"messages": [CONVERSE]}, {"model": "m", "messages": [USER], "tools": TOOLS}), ":1 is in the format bedrock-converse (a block has 'toolUse' and no 'type'), "),
    "chat as Responses, with a model": Case(json.dumps({"messages": [USER], "model": "m"}), " is not in the openai-responses format; ", "openai-responses"),
    "items where chat stands, with a model": Case(json.dumps({"messages": [USER, ITEM], "model": "m"}), ": 'model' would be lost in the openai-responses format, because it is next to 'messages', the key of messages in requests to OpenAI"),
    "items where chat stands, with parameters": Case(json.dumps({"messages": [USER, ITEM], "temperature": 1}), ": 'temperature' would be lost in the openai-responses format, ", "openai-responses"),
    "contents that are chat, with a config": Case(json.dumps({"contents": [USER], "generationConfig": {}}), ": 'generationConfig' would be lost in the openai format, because it is next to 'contents', the key of messages in requests to Gemini", "openai"),
    "a text among Bedrock's blocks": Case(json.dumps({"messages": [CONVERSE, USER]}), ": message 1: the content of a message is a list of blocks, not a text"),
    # calls as others write them, within one conversation
    "Anthropic's call among Bedrock's blocks": Case(json.dumps({"messages": [{"role": "user", "content": [{"text": "x"}]}, USES]}), ": message 1: a block is of type 'tool_use', and Bedrock's have no type"),
    "Anthropic's call in a block beside Bedrock's": Case(json.dumps({"messages": [CONVERSE, {"role": "assistant", "content": [*CONVERSE["content"], *USES["content"]]}]}), ": message 1: a block is of type 'tool_use', and "),
    "Bedrock's call among Anthropic's": Case(json.dumps({"messages": [{"role": "assistant", "content": [*USES["content"], *CONVERSE["content"]]}]}), ": message 0: content[1] is a tool call or result in the bedrock-converse format, but the file is in the anthropic format"),
    "Anthropic's call among OpenAI's": Case(json.dumps({"messages": [CALLS, USES]}), ": message 1: content[0] is a tool call or result in the anthropic format, but the file is in the openai format"),
    "Anthropic's call among items": Case(json.dumps({"model": "m", "input": [ITEM, USES]}), ": message 0: content[0] is a tool call or result in the anthropic format, but "),
    # the same in a list
    "Gemini and Responses in a list": Case(json.dumps([{"contents": [CONTENT]}, {"model": "m", "input": [USER]}]), "[0] is in the format gemini (a message has 'parts'), "),
    "OpenAI and Anthropic in a list": Case(json.dumps([{"messages": [CALLS]}, {"system": "Be kind.", "messages": [USER]}]), "[0] is in the format openai (a message has 'tool_calls'), "),
    "OpenAI and Gemini in a list": Case(json.dumps([{"model": "m", "messages": [USER]}, {"contents": [CONTENT]}]), "[1] is in the format gemini (a message has 'parts'), "),
    "mixed in a list of lists": Case(json.dumps([[{"messages": [CALLS]}], [{"contents": [CONTENT]}]]), "[0][0] is in the format openai (a message has 'tool_calls'), "),
    "lists of messages of both": Case(json.dumps([[USER, CALLS], [USER, USES]]), "[0] is in the format openai (a message has 'tool_calls'), "),
    "lines and messages in a list": Case(json.dumps([LINE, {"messages": [CALLS]}]), "[0] is in the format claude-code (a line has a type and 'sessionId'), "),
    "spans and messages in a list": Case(json.dumps([SPAN, {"messages": [CALLS]}]), "[0] is in the format otel (a span has 'gen_ai.input.messages'), "),
    "a list that is too large to hold": Case(json.dumps([{"contents": [CONTENT]}, *([{"contents": [{"role": "user", "parts": [{"text": "x" * 9999}]}]}] * 300), {"messages": [CALLS]}]), "[0] is in the format gemini (a message has 'parts'), "),
    # said to be in another format
    "Gemini as OpenAI's": Case(json.dumps({"contents": [CONTENT]}), " is in the format gemini, not openai: a message has 'parts'", "openai"),
    "Bedrock as Anthropic's": Case(json.dumps({"messages": [CONVERSE]}), " is in the format bedrock-converse, not anthropic: a block has 'toolUse' and no 'type'", "anthropic"),
    "Responses as OpenAI's": Case(json.dumps({"input": [ITEM]}), " is in the format openai-responses, not openai: an item is of type 'function_call'", "openai"),
    "chat as Gemini's": Case(json.dumps({"messages": [USER]}), " is not in the gemini format; ", "gemini"),
    "chat as Responses": Case(json.dumps({"messages": [CALLS]}), " is not in the openai-responses format; ", "openai-responses"),
    "chat as spans": Case(lines({"messages": [USER]}, {"messages": [CALLS]}), " is not in the otel format; ", "otel"),
    "messages as spans": Case(json.dumps([USER]), " is not in the otel format; ", "otel"),
    "chat as recorded HTTP": Case(json.dumps({"messages": [USER]}), " is not in the http format; ", "http"),
    "chat as LangChain's": Case(json.dumps({"messages": [USER]}), " is not in the langchain format; ", "langchain"),
    "chat as ShareGPT's": Case(json.dumps({"messages": [USER]}), " is not in the sharegpt format; ", "sharegpt"),
    "spans without messages": Case(json.dumps([{"name": "GET /", "attributes": {}}]), ": none of 1 spans has messages", "otel"),
    "events as Claude Code's": Case(lines(*({"type": "tick", "n": n} for n in range(9))), ": 9 of 9 lines are not in the claude-code format", "claude-code"),
    "mostly events": Case(lines(LINE, *({"type": "tick"} for _ in "abc")), ": 3 of 4 lines are not in the claude-code format", "claude-code"),
    # containers
    "pi as Claude Code's": Case(lines(PI, PI_MESSAGE), ":1 is in the format pi, not claude-code: a line of the type 'session' has a 'cwd'", "claude-code"),
    "pi and Codex": Case(lines(PI, PI_MESSAGE, CODEX), ":1 is in the format pi (a line of the type 'session' has a 'cwd'), "),
    "Codex and plain": Case(lines(CODEX, USER), ":1 is in the format codex (a line of the type 'response_item' has a payload), "),
    "OpenHands and Claude Code": Case(lines(OPENHANDS, LINE), ":1 is in the format openhands (an event has a source and an action or an observation), "),
    "OpenHands of today as OpenAI's": Case(lines(OPENHANDS_V1), " is in the format openhands, not openai: an event has the kind 'MessageEvent'", "openai"),
    "a line of pi's that is none": Case(lines(PI, PI_MESSAGE, 5), ":3: an entry must be an object, not a number"),
    "a log of Inspect without messages": Case(json.dumps({**INSPECT, "samples": [{"id": 1}]}), ": samples[0]: an Inspect sample must have messages"),
    "a role of Inspect's": Case(json.dumps({**INSPECT, "samples": [{"messages": [{"role": "narrator"}]}]}), ": samples[0]: message 0: the role of an Inspect message must be one of "),
    "a role of SWE-agent's": Case(json.dumps({"trajectory": [], "history": [{"role": "narrator"}]}), ": history[0]: the role of a SWE-agent message must be one of "),
    "a role of Letta's": Case(json.dumps({"blocks": [], "agents": [{"messages": [{"role": "narrator"}]}]}), ": agents[0]: messages[0]: a Letta role must be one of "),
    "chat as Codex's": Case(lines(CALLS), ": 1 of 1 lines are not in the codex format", "codex"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_invalid_file_is_refused_in_one_line_and_writes_nothing(
    cbx: Cbx, tmp_path: Path, row_counts: Callable[[], dict[str, int]], name: str
) -> None:
    case = CASES[name]
    file = tmp_path / "file.jsonl"
    file.write_bytes(case.text.encode("utf-8", "surrogateescape"))
    before = row_counts()
    result = cbx("card", "import", str(file), "--from", case.named)
    first, *others = result.err.splitlines()
    assert (result.code, result.out) == (4, "")
    assert first.startswith(f"error: {file}{case.says}")
    assert [line.split(":")[0] for line in others] in ([], ["hint"])
    assert row_counts() == before
