"""Every surface on the test's database: commands, the HTTP API, pages and tools for agents."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from cardbox_cli.model.cards import draft_card
from cardbox_cli.serve.mcp import ToolRunner, make_connection_pool
from cardbox_cli.settings import Settings
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.target import Target
from tests.cli.conftest import succeed
from tests.conftest import PROJECT, Cbx
from tests.serve.conftest import api, serve
from tests.serve.test_mcp import called

__all__ = ["api", "serve"]

CLIENT = f"{shlex.quote(sys.executable)} {Path(__file__).parents[2] / 'examples/client.py'}"
PROFILE = "name: clerk\nsystem_prompt: You are a clerk.\nallowed_tools: [look]\nllm_config: {model: gpt-4o}\n"

Surface = Callable[..., Any]


@pytest.fixture
def command(cbx: Cbx) -> Surface:
    """The JSON that a command prints."""
    return lambda *words: json.loads(succeed(cbx(*words, "-o", "json")))


@pytest.fixture
def http(api: TestClient) -> Surface:
    """The JSON that the API answers."""

    def get(path: str, **query: object) -> Any:
        answer = api.get(f"/projects/{PROJECT}{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return get


@pytest.fixture
def tool(target: Target) -> Iterator[Surface]:
    """The JSON that a tool for agents answers."""
    with closing(make_connection_pool(target, longest=10)) as lending:
        read = ToolRunner(lending, PROJECT, settings=Settings())

        def call(name: str, **arguments: object) -> Any:
            [result] = called(read, (name, arguments))
            [content] = result.content
            assert not result.is_error, content.text
            return json.loads(content.text)

        yield call


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


@pytest.fixture
def page(api: TestClient) -> Surface:
    """The text of a page of the inspector, its words separated by single spaces."""

    def get(path: str, **query: object) -> str:
        answer = api.get(f"/inspect/{PROJECT}{path}", params=query)
        assert answer.status_code == 200, answer.text
        reader = _Text()
        reader.feed(answer.text)
        return " ".join(" ".join(reader.parts).split())

    return get


@pytest.fixture
def box(cards: CardStore, boxes: BoxStore) -> str:
    """A box that asks for something; its id."""
    card = draft_card("task.instruction", "Find the cause.")
    cards.add(card)
    return boxes.create([card.card_id]).box_id


@pytest.fixture
def turns(cbx: Cbx, box: str, tmp_path: Path) -> list[str]:
    """The agent `clerk` with two turns that called a tool and ended, and one that nobody has run; their ids."""
    (tmp_path / "clerk.yaml").write_text(PROFILE)
    succeed(cbx("profile", "import", str(tmp_path / "clerk.yaml")))
    succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
    succeed(cbx("tool", "add", "look", "--exec", "cat", "--description", "Look at what is there."))
    ids = []
    for runs in (True, True, False):
        dispatch = cbx("dispatch", "--agent", "clerk", "--context-box", box, "-o", "id")
        ids.append(succeed(dispatch).strip())
        if runs:
            command = ["--trust-stored-commands", "--exec", f"{CLIENT} --call look '{{}}'", "--drain"]
            succeed(cbx("worker", "run", *command))
    return ids
