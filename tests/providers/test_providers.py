"""A provider is one package and one line; nothing else in cbx knows one by its name."""

import io
import json
import re
import tokenize
from pathlib import Path

import pytest

import cardbox_cli
from cardbox_cli.providers import registry
from tests.conftest import Cbx

MESSAGES = [
    {"role": "user", "content": "How many legs has a spider?"},
    {"role": "toy", "content": "Eight.", "mood": "sure"},
]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.PROVIDERS, "toy", "tests.providers.toy:Toy")
    monkeypatch.setenv("CBX_MODELS", str(Path(__file__).parent / "toy" / "models.toml"))


def imported(cbx: Cbx, folder: Path, *messages: object, form: str = "toy") -> str:
    file = folder / "chat.json"
    file.write_text(json.dumps({"messages": [*MESSAGES, *messages]}))
    return cbx("card", "import", str(file), "--from", form, "-o", "id").out.strip()


def test_a_new_provider_imports_and_exports(cbx: Cbx, tmp_path: Path) -> None:
    box = imported(cbx, tmp_path)
    assert cbx("card", "export", "--box", box, "--to", "toy").json() == {"messages": MESSAGES}
    again = cbx("card", "import", str(tmp_path / "chat.json"))
    assert again.err == "recognized as toy: a message has the role 'toy'\n1 conversation, 2 cards, 0 new\n"
    refused = cbx("card", "import", "-", "--from", "nope")
    assert (
        refused.code,
        "bedrock-converse, toy, codex, " in refused.err,
    ) == (2, True)


def test_a_new_provider_renders_to_and_from_other_formats(cbx: Cbx, tmp_path: Path) -> None:
    box = imported(cbx, tmp_path)
    rendered = cbx("render", "--box", box, "--format", "toy", "--model", "toy-1")
    assert rendered.json() == {
        "model": "toy-1",
        "script": ["user> How many legs has a spider?", "toy> Eight."],
    }
    assert rendered.err == ""
    assert cbx("render", "--box", box, "--format", "openai").json()["messages"][1] == {
        "role": "assistant",
        "content": "Eight.",
    }
    assert cbx("render", "--box", box, "--format", "anthropic").json()["messages"][1] == {
        "role": "assistant",
        "content": "Eight.",
    }
    explained = cbx(
        "render", "--box", box, "--format", "toy", "--model", "toy-1", "--explain", "-o", "json"
    ).json()
    assert explained["explanation"]["tokens"] == 19
    assert explained["request"]["model"] == "toy-1"


def test_content_that_a_new_provider_cannot_send_is_reported_lost(cbx: Cbx, tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    file = tmp_path / "chat.json"
    file.write_text(
        json.dumps({"messages": [MESSAGES[0], {"role": "assistant", "content": "Hm.", "tool_calls": [call]}]})
    )
    # Calls alone make no card that may lose something; a kept original does.
    file.write_text(file.read_text().replace('"Hm."', '[{"type": "text", "text": "Hm."}]'))
    box = cbx("card", "import", str(file), "--from", "openai", "-o", "id").out.strip()
    rendered = cbx("render", "--box", box, "--format", "toy", "--model", "toy-1")
    assert rendered.err == (
        "warning: toy cannot represent everything (1 place): calls of tools are not sent; --check lists every place\n"
    )


def test_a_new_provider_is_linted_by_its_rules(cbx: Cbx, tmp_path: Path) -> None:
    box = imported(cbx, tmp_path, {"role": "user", "content": "AND AN ANT?"})
    checked = cbx("render", "--box", box, "--model", "toy-1", "--check", "-o", "json")
    assert [(each["rule"], each["provider"], each["position"]) for each in checked.json()] == [
        ("shouting", "toy", 2)
    ]
    assert checked.code == 8
    linted = cbx("card", "lint", str(tmp_path / "chat.json"), "-o", "json")
    assert [(each["rule"], each["provider"]) for each in linted.json()] == [("shouting", "toy")]
    long = imported(cbx, tmp_path, {"role": "user", "content": "so " * 300})
    rules = cbx("render", "--box", long, "--model", "toy-1", "--check", "-o", "json").json()
    assert [each["rule"] for each in rules] == ["over-limit"]


def test_two_requests_to_a_new_provider_can_be_compared(cbx: Cbx, tmp_path: Path) -> None:
    one, other = imported(cbx, tmp_path), imported(cbx, tmp_path, {"role": "user", "content": "And an ant?"})
    found = cbx("render", "--diff", one, other, "--format", "toy", "--model", "toy-1", "-o", "json")
    assert (found.code, found.json()["continues"]) == (0, True)
    assert found.json()["kept"]["messages"] == 2
    assert found.json()["difference"]["a"] is None
    assert found.json()["difference"]["b"]["text"] == "And an ant?"


PACKAGE = Path(cardbox_cli.__file__).parent
# Where a provider goes by its name: its own folder, the registry, and formats of files that hold its messages.
HOMES = [*registry.PROVIDERS]
ALLOWED = {"providers/registry.py"}


def _named(path: Path) -> set[str]:
    """The providers that a module's names and strings name; what is written for people is no matter."""
    found = set()
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    for token in tokens:
        words: set[str] = set()
        if token.type == tokenize.NAME:
            words = set(re.split(r"[_\d]+", token.string.lower()))
        elif token.type == tokenize.STRING:
            text = token.string.strip("rbfRBF").strip("\"'")
            if re.fullmatch(r"[\w./-]+(\|[\w./-]+)*", text):
                words = set(re.split(r"[|./_-]", text))
        found |= words & set(HOMES)
    return found


def test_provider_names_appear_only_in_their_packages() -> None:
    strangers = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        folder = place.removeprefix("providers/").partition("/")[0]
        own = {name for name in HOMES if name.replace("-", "_") == folder}
        named = _named(path) - own - {part for name in own for part in name.split("-")}
        if place.startswith("conversations/"):
            named -= _imported_parts(path)
        if named and place not in ALLOWED:
            strangers[place] = named
    assert strangers == {}


def _imported_parts(path: Path) -> set[str]:
    """The providers whose parts the format of a file is made of."""
    imports = re.findall(r"^from cardbox_cli\.providers\.(\w+)\.", path.read_text(), re.MULTILINE)
    return {part for name in imports for part in (name, *name.split("_"))} & set(HOMES)
