"""Tables of what requests may hold: what a value lacks beside one, and that they are those of today's packages."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cardbox_cli.context.request_schema import Schema, place_text
from cardbox_cli.providers.registry import providers

ROOT = Path(__file__).parents[2]
TABLE: dict[str, Any] = {
    "sdk": "acme 1.0",
    "request": "Request",
    "types": {
        "Request": {
            "messages": {"each": ["User", "Tool"]},
            "limit?": "integer",
            "heat?": ["number", "null"],
            "mode?": [{"in": ["fast", "slow"]}, "null"],
            "labels?": {"map": "text"},
            "choice?": ["text", "Choice"],
            "name?": {"is": "text", "least": 1, "most": 3, "like": "[a-z]+"},
        },
        "User": {"role": {"in": ["user"]}, "content": ["text", {"each": "Part"}]},
        "Tool": {"role": {"in": ["tool"]}, "id": "text", "*": "any"},
        "Part": {"!": "one", "text?": "text", "image?": "any"},
        "Choice": {"type?": {"in": ["one"]}, "one": "text"},
    },
}
SAID = {"role": "user", "content": "Hi"}


def told(request: dict[str, Any], **table: Any) -> list[tuple[str, str, str]]:
    misfits = Schema({**TABLE, **table}).misfits(request)
    return [(place_text(each.place), each.sort, each.what) for each in misfits]


@pytest.mark.parametrize(
    "request_body",
    [
        {"messages": []},
        {"messages": [SAID, {"role": "tool", "id": "a", "more": 5}], "limit": 5, "heat": 0.5, "mode": "fast"},
        {
            "messages": [{"role": "user", "content": [{"text": "a"}, {"image": 5}]}],
            "heat": None,
            "mode": None,
        },
        {"messages": [], "labels": {"a": "b"}, "choice": {"one": "a"}, "name": "abc", "limit": 5.0},
    ],
)
def test_a_request_that_matches_the_schema_has_no_misfits(request_body: dict[str, Any]) -> None:
    assert told(request_body) == []


@pytest.mark.parametrize(
    ("request_body", "misfit"),
    [
        ({}, ("messages", "key-missing", "missing")),
        ({"messages": "Hi"}, ("messages", "value-invalid", "'Hi', and not a list")),
        ({"messages": [], "limt": 5}, ("limt", "parameter-unknown", "unknown (near: limit)")),
        ({"messages": [], "zzz": 5}, ("zzz", "parameter-unknown", "unknown")),
        ({"messages": [], "limit": True}, ("limit", "value-invalid", "a boolean, and not an integer")),
        ({"messages": [], "limit": 1.5}, ("limit", "value-invalid", "1.5, and not an integer")),
        ({"messages": [], "heat": "hot"}, ("heat", "value-invalid", "'hot', and not a number or null")),
        ({"messages": [], "mode": "warp"}, ("mode", "value-unknown", "'warp', none of 'fast', 'slow'")),
        ({"messages": [], "mode": 5}, ("mode", "value-invalid", "5, and not 'fast', 'slow' or null")),
        ({"messages": [], "labels": {"a": 5}}, ("labels.a", "value-invalid", "5, and not a text")),
        ({"messages": [], "name": ""}, ("name", "value-out-of-range", "0 long, not from 1 to 3")),
        ({"messages": [], "name": "A"}, ("name", "value-out-of-range", "'A', which is not like [a-z]+")),
        ({"messages": [{"role": "bot"}]}, ("messages[0].role", "value-unknown", "'bot', none of 'user', 'tool'")),
        ({"messages": [{"content": "a"}]}, ("messages[0].role", "key-missing", "missing")),
        ({"messages": [{**SAID, "id": 1}]}, ("messages[0].id", "key-unknown", "unknown")),
        ({"messages": [{"role": "user", "content": [{"text": "a", "image": 5}]}]},
         ("messages[0].content[0]", "value-invalid", "an object, and not one with exactly one of the keys text, image")),
        ({"messages": ["Hi"]}, ("messages[0]", "value-invalid", "'Hi', and not an object")),
    ],
)  # fmt: skip
def test_a_misfit_is_reported_with_its_path(
    request_body: dict[str, Any], misfit: tuple[str, str, str]
) -> None:
    assert told(request_body) == [misfit]


def test_proto_json_accepts_several_forms_of_keys_and_values() -> None:
    types = {"Request": {"topK?": "integer", "safetyMode": {"in": ["LOW", "HIGH"]}}}
    for request in ({"top_k": 5, "safety_mode": "low"}, {"topK": 5, "safetyMode": 2}):
        assert told(request, types=types, proto_json=True) == []
        assert told(request, types=types) != []
    wrong = told({"safetyMode": "MEDIUM"}, types=types, proto_json=True)
    assert wrong == [("safetyMode", "value-unknown", "'MEDIUM', none of 'LOW', 'HIGH'")]


def test_the_committed_schemas_match_the_sdk_packages(tmp_path: Path) -> None:
    """Else `make schemas` writes them anew."""
    script = ROOT / "scripts" / "request-schemas"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=120)
    made = {file.parent.name: file.read_text() for file in tmp_path.glob("*/request_schema.json")}
    folder = ROOT / "cardbox_cli" / "providers"
    committed = {file.parent.name: file.read_text() for file in folder.glob("*/request_schema.json")}
    assert made == committed
    assert len(made) == len(list(providers()))


@pytest.mark.parametrize("provider", list(providers()), ids=lambda each: each.name)
def test_a_schema_names_its_package_and_defines_every_used_type(provider: Any) -> None:
    schema = provider.schema
    assert schema.sdk.partition(" ")[2]
    assert provider.message_keys[-1] in schema.keys
    folder = ROOT / "cardbox_cli" / "providers" / provider.schema_package.rpartition(".")[2]
    table = msgspec.json.decode((folder / "request_schema.json").read_bytes())
    kinds = {"text", "integer", "number", "boolean", "null", "object", "any"}
    assert set(_names(table["types"])) <= kinds | table["types"].keys()


def _names(value: Any) -> list[str]:
    """The names of types that stand in types."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [name for each in value for name in _names(each)]
    apart = ("in", "least", "most", "like", "!")
    return [name for key, each in value.items() if key not in apart for name in _names(each)]
