"""Files that other programs wrote: `scripts/make-fixtures` had them written, by the versions in versions.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.cli.options.conversation_files import open_file
from cardbox_cli.conversations.containers.packed_files import open_log
from cardbox_cli.conversations.formats.registry import choose_format
from cardbox_cli.conversations.json_documents import JsonDocuments, JsonSource
from tests.cli.conftest import lines as lines_of
from tests.cli.conftest import succeed
from tests.conftest import Cbx
from tests.conversations.reading import entries_of

FIXTURES = Path(__file__).parents[1] / "fixtures"
LANGCHAIN = ("langchain-dict.json", "langchain-dumpd.json", "langchain-state.json")
EXPECTED = {
    "inspect.json": ("inspect", 2),
    "inspect.eval": ("inspect", 2),
    "letta.af": ("letta", 1),
    **dict.fromkeys(LANGCHAIN, ("langchain", 1)),
}

# What OpenAI would rightly refuse: the ids of Inspect's mock model, a call of LangChain's that broke off.
KNOWN = {"inspect": {"tool-id-too-long"}, "langchain": {"arguments-invalid"}}


def rendered(cbx: Cbx, name: str, provider: str, *options: str, box: int = 0) -> dict[str, Any]:
    """The request that a conversation of a file makes."""
    boxes = lines_of(cbx("card", "import", str(FIXTURES / name), "-o", "id"))
    found = cbx("render", "--box", boxes[box], "--format", provider, "-o", "json", *options).json()
    assert isinstance(found, dict)
    return found


def said(request: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(each["role"], each.get("content")) for each in request["messages"]]


def test_the_versions_file_lists_every_program() -> None:
    versions = json.loads((FIXTURES / "versions.json").read_text())
    assert set(versions) == {"inspect-ai", "letta", "langchain-core"}
    assert versions["letta"] == "0.16.8"


@pytest.mark.parametrize("name", EXPECTED)
def test_each_file_is_recognized_and_accepted_by_the_provider(cbx: Cbx, name: str) -> None:
    format_name, count = EXPECTED[name]
    result = cbx("card", "import", str(FIXTURES / name), "-o", "id")
    boxes = succeed(result).split()
    assert result.err.startswith(f"recognized as {format_name}: ")
    assert len(boxes) == count
    for box in boxes:
        checked = cbx(
            "render", "--box", box, "--format", "openai", "--model", "gpt-4o", "--check", "-o", "json"
        )
        errors = {each["rule"] for each in checked.json() if each["severity"] == "error"}
        assert errors <= KNOWN.get(format_name, set())
    assert " 0 new" in cbx("card", "import", str(FIXTURES / name)).err


def test_an_inspect_log_and_its_archive_have_equal_conversations() -> None:
    found = []
    for name in ("inspect.json", "inspect.eval"):
        with open_file(str(FIXTURES / name)) as plain, open_log(plain, name) as file:
            documents = JsonDocuments(JsonSource(file, name))
            conversations = list(choose_format(None, documents).format.read(documents))
            found.append(
                [
                    [
                        (each.slot.card.type, type(each.slot.card.content))
                        for each in entries_of(conversation)
                        if each.slot.card
                    ]
                    for conversation in conversations
                ]
            )
    assert found[0] == found[1]


def test_an_inspect_log_renders_all_of_its_content(cbx: Cbx) -> None:
    files = rendered(cbx, "inspect.json", "anthropic", "--model", "claude-sonnet-4-5")
    assert files["system"] == "Be brief."
    [asked, called, answered, last] = files["messages"]
    assert asked == {"role": "user", "content": "List the folder."}
    assert [block["type"] for block in called["content"]] == [
        "text",
        "tool_use",
    ]  # the thought is no Claude's
    assert answered["content"][0]["content"] == "a.txt"
    # A tool that the provider ran is told in words, and is no call that waits for its result.
    assert 'web_search({"query":"a.txt"})' in json.dumps(last).replace('\\"', '"')
    assert "tool_use" not in json.dumps(last)

    picture = rendered(cbx, "inspect.json", "anthropic", "--model", "claude-sonnet-4-5", box=1)
    text, image, document = picture["messages"][0]["content"]
    assert text["text"].startswith("What is in")
    assert (image["source"]["type"], image["source"]["media_type"]) == ("base64", "image/png")
    assert document == {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "Hi"},
        "title": "hi.txt",
    }
    [result] = picture["messages"][2]["content"]
    assert (result["content"], result["is_error"]) == ("there is no folder nowhere", True)


def test_a_letta_file_renders_all_of_its_content(cbx: Cbx) -> None:
    request = rendered(cbx, "letta.af", "openai")
    roles = [role for role, _ in said(request)]
    # Both results of one message, the call that waited for leave, the denied result, the summary as the user's.
    assert roles == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "user",
        "user",
        "assistant",
    ]
    calls = [call["id"] for each in request["messages"] for call in each.get("tool_calls", ())]
    answers = [each["tool_call_id"] for each in request["messages"] if each["role"] == "tool"]
    assert calls == answers == ["c1", "c2", "c3"]
    assert json.loads(request["messages"][4]["content"])["message"] == "no such folder"
    assert "Two folders." in request["messages"][7]["content"]
    assert request["messages"][8]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert [tool["function"]["name"] for tool in request["tools"]] == ["ls"]
    thought = rendered(cbx, "letta.af", "anthropic", "--model", "claude-sonnet-4-5")["messages"][1][
        "content"
    ][0]
    assert thought == {"type": "thinking", "thinking": "Let me look.", "signature": "c2lnbmVk"}
    messages = rendered(cbx, "letta.af", "anthropic", "--model", "claude-sonnet-4-5")["messages"]
    results = [block for each in messages for block in each["content"] if "tool_use_id" in block]
    failed = [(block["tool_use_id"], block.get("is_error", False)) for block in results]
    assert failed == [("c1", False), ("c2", True), ("c3", True)]


@pytest.mark.parametrize("name", LANGCHAIN)
def test_langchain_files_are_exported_unchanged(cbx: Cbx, name: str) -> None:
    box = lines_of(cbx("card", "import", str(FIXTURES / name), "-o", "id"))[0]
    exported = cbx("card", "export", "--box", box, "--to", "langchain").json()
    original = json.loads((FIXTURES / name).read_text())
    assert exported == (original["messages"] if isinstance(original, dict) else original)
    messages = cbx("render", "--box", box, "--format", "openai", "-o", "json").json()["messages"]
    assert messages[1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert [call["id"] for call in messages[2]["tool_calls"]] == ["c1", "c2"]
    assert messages[-2]["role"] == "developer"
