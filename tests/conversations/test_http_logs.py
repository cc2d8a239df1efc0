"""Recorded HTTP: requests within it, whose bodies are texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import lines as lines_of
from tests.conftest import Cbx

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
# The provider, the address that a request is sent to, and its body, which often bears no mark.
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": ("https://api.anthropic.com/v1/messages?beta=true", {"model": "m", "max_tokens": 5, "messages": HI}),
    "openai": ("https://example.com/openai/v1/chat/completions", {"model": "gpt-4o", "messages": HI, "tools": [TOOL], "temperature": 0.5}),
    "openai-responses": ("https://api.openai.com/v1/responses", {"model": "gpt-5", "input": "Hi", "store": False}),
    "gemini": ("https://example.com/v1beta/models/g:generateContent?key=1", {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
    "bedrock-converse": ("https://example.com/model/m/converse", {"messages": [{"role": "user", "content": [{"text": "Hi"}]}], "inferenceConfig": {"maxTokens": 9}}),
}  # fmt: skip
OTHERS = [
    {"request": {"method": "GET", "url": "https://example.com/"}, "response": {"content": {"text": '{"messages": []}'}}},
    {"request": {"method": "POST", "url": "https://example.com/t", "postData": {"text": '{"a": 1}'}}},
    {"request": {"method": "POST", "url": "https://example.com/t", "postData": {"text": "{half"}}},
]  # fmt: skip


def har(entries: list[Any]) -> str:
    return json.dumps(
        {"log": {"version": "1.2", "creator": {"name": "x", "version": "1"}, "entries": entries}}
    )


def post(url: str, body: str) -> dict[str, Any]:
    headers = [{"name": "authorization", "value": "Bearer secret"}]
    return {"request": {"method": "POST", "url": url, "headers": headers, "postData": {"text": body}}}


FORMS = {
    "HAR": lambda sent: har([*OTHERS, *(post(url, text) for url, text in sent)]),
    "lines": lambda sent: "".join(json.dumps({"url": url, "body": text}) + "\n" for url, text in sent),
    "requests in a list": lambda sent: json.dumps(
        [{"request": {"url": url, "body": text}, "at": 1} for url, text in sent]
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_logged_request_is_exported_in_its_provider_format(cbx: Cbx, tmp_path: Path, form: str) -> None:
    path = tmp_path / "log.har"
    path.write_text(FORMS[form]([(url, json.dumps(body)) for url, body in BODIES.values()]))
    result = cbx("card", "import", str(path), "-o", "id")
    boxes = lines_of(result)
    assert result.err.startswith("recognized as http: ")
    assert len(boxes) == len(BODIES)
    for box, (name, (_, body)) in zip(boxes, BODIES.items(), strict=True):
        assert cbx("card", "export", "--box", box, "--to", name).json() == body
    assert " 0 new" in cbx("card", "import", str(path)).err
    assert "secret" not in cbx("card", "list", "-o", "json", "--limit", "0").out


def test_logged_requests_are_linted_for_their_provider(cbx: Cbx, tmp_path: Path) -> None:
    path = tmp_path / "log.har"
    bodies = [(url, json.dumps({**body, "nonsense": 1})) for url, body in BODIES.values()]
    path.write_text(FORMS["HAR"](bodies))
    result = cbx("card", "lint", str(path), "-o", "json")
    found = [each["provider"] for each in result.json() if "nonsense" in each["message"]]
    assert found == [name for name in BODIES if name != "gemini"]  # bare contents need be no request
    assert f"checked for {' and '.join(sorted(BODIES))}" in result.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (har(OTHERS), "none of 3 requests has a body with messages"),
        (har([]), "none of 0 requests has a body with messages"),
        (har([post("/v1/messages", '{"messages": [{"role": "user", "content": "Hi", "content": "Ho"}]}')]), "an object has the key 'content' twice"),
        (har([post("/v1/messages", '{"messages": [{"role": "nobody", "content": "Hi"}]}')]), "unknown role 'nobody' for format anthropic"),
    ],
    ids=["others alone", "nothing", "a key twice", "a role of nobody"],
)  # fmt: skip
def test_a_log_without_messages_or_with_a_broken_body_is_refused(
    cbx: Cbx, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "log.har"
    path.write_text(text)
    result = cbx("card", "import", str(path))
    assert (result.code, result.out) == (4, "")
    assert message in result.err


def test_a_json_body_field_in_a_chat_is_not_an_http_log(cbx: Cbx, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": HI, "body": json.dumps({"messages": HI})}))
    assert not cbx("card", "import", str(path)).err.startswith("recognized as http")
