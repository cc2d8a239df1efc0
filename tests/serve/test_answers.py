"""Answers beside the OpenAPI document: each is as the document says, whatever is stored, by whomever."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema_rs import Draft202012Validator
from psycopg import sql
from starlette.testclient import TestClient

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.serve.app import make_app
from cardbox_cli.serve.serve_options import ServeOptions
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT
from tests.foreign.scenes import SCENES, Scene
from tests.foreign.writer import Deployment
from tests.orchestration.batches.conftest import fork  # noqa: F401  # a fixture
from tests.serve.page.conftest import family, project, run  # noqa: F401  # fixtures

BASE = f"/projects/{PROJECT}"
ODD = {
    "free": ('{"text": "word", "__type__": "TextContent"}', '{"type": "note of ours", "role": "narrator"}'),
    "unknown": ('{"__type__": "OtherContent", "text": "word"}', '{"type": "x", "author_id": 5, "role": 7}'),
    "nothing": ("null", '{"type": "word"}'),
    "list": ('["word"]', "{}"),
    "number": ("1.50", '{"type": ["a"], "created_at": "yesterday"}'),
}


@cache
def document() -> dict[str, Any]:
    """What the app says of its answers, whatever database it is on."""
    nowhere = Target(None, "the test", Path("/nonexistent"))
    return make_app(ServeOptions(target=nowhere, settings=Settings(), usual_project=PROJECT)).openapi()


@cache
def checking(method: str, path: str, status: int) -> Draft202012Validator:
    """What an answer must be like."""
    said = document()["paths"][f"/projects/{{project}}{path}"][method]["responses"]
    schema = said[str(status)]["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": document()["components"]})


class Reader:
    """Asks for all that there is, and compares each answer with the document."""

    def __init__(self, api: TestClient) -> None:
        self._api = api
        self.asked = 0

    def get(self, path: str, *names: str, **query: str) -> Any:
        """The answer of a path of the document, in which the names stand for its parts."""
        address = path
        for name in names:
            part = address[address.index("{") : address.index("}") + 1]
            address = address.replace(part, quote(name, safe=""), 1)
        return self._checked("get", path, self._api.get(BASE + address, params=query))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._checked("post", path, self._api.post(BASE + path, json=body))

    def _checked(self, method: str, path: str, response: Any) -> Any:
        self.asked += 1
        value = response.json()
        wrong = checking(method, path, response.status_code).iter_errors(value)
        assert [f"{path}: {each.instance_path}: {each.message}" for each in wrong] == []
        return value if response.status_code == 200 else None

    def everything(self) -> None:
        """All of a project, from its lists on."""
        boxes: set[str] = set()
        for name in ("/inbox", "/why"):
            self.get(name)
        cards = [each["card_id"] for each in self.get("/search", text="word") or []]
        for agent in self.get("/agents"):
            self._named("agent", agent["agent_id"], "/agents/{agent_id}", "/agents/{agent_id}/why", "/cost")
        for turn in self.get("/turns"):
            boxes |= {turn["context_box_id"], turn["output_box_id"]}
            turn_id = turn["agent_turn_id"]
            self._named("turn", turn_id, "/turns/{turn_id}", "/turns/{turn_id}/why", "/cost", "/render")
        for batch in self.get("/batches") or []:
            self.get("/batches/{batch_id}", batch["batch_id"])
        for chat in self.get("/chats") or []:
            self._named("chat", chat["chat_key"], "/chats/{chat_key}", "/cost", "/render")
        for box in filter(None, boxes):
            cards += (self.get("/boxes/{box_id}", box) or {}).get("card_ids", [])
            self._named("box", box, "/boxes/{box_id}/cards", "/cost", "/render")
        self.post("/boxes/batch", {"box_ids": [*filter(None, boxes)], "hydrate": True})
        for card in {*cards}:
            self.get("/cards/{card_id}", card)
        self.post("/cards/batch", {"card_ids": cards[:100]})

    def _named(self, kind: str, name: str, *paths: str) -> None:
        for path in paths:
            if "{" in path:
                self.get(path, name)
            else:
                self.get(path, **{kind: name})


def written(database: Any) -> Iterator[str]:
    """Cards as other programs may write them; their ids."""
    for card_id, (content, metadata) in ODD.items():
        database.execute(
            "INSERT INTO public.cards (tenant_id, card_id, content, metadata, tool_calls, expires_at)"
            " VALUES (%s, %s, %s, %s, '\"none\"', 'infinity')",
            [PROJECT, card_id, content, metadata],
        )
        yield card_id


def update(database: Database, table: str, column: str, value: str) -> None:
    """Have each row of a table say so."""
    names = {"table": sql.Identifier(*table.split(".")), "column": sql.Identifier(column)}
    database.connection.execute(
        sql.SQL("UPDATE {table} SET {column} = {value}").format(**names, value=sql.Literal(value))
    )


def test_answers_for_a_cbx_project_match_the_document(
    project: Runtime,  # noqa: F811  # the fixture above
    api: TestClient,
    database: Database,
) -> None:
    odd = list(written(database.connection))
    box = project.boxes.create(odd).box_id
    reader = Reader(api)
    reader.everything()
    reader._named("box", box, "/boxes/{box_id}", "/boxes/{box_id}/cards", "/cost", "/render")
    found = reader.post("/cards/batch", {"card_ids": odd})
    assert [card["card_id"] for card in found["cards"]] == odd
    [free] = [card for card in reader.get("/search", text="word") if card["card_id"] == "free"]
    assert (free["type"], free["role"]) == ("note of ours", "narrator")
    assert reader.asked > 60


class TestDeploymentAnswers:
    @pytest.fixture
    def target(self, foreign_target: Target) -> Target:
        return foreign_target

    @pytest.fixture
    def deployment(self, database: Database) -> Deployment:
        return Deployment(database.connection)

    @pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
    def test_answers_in_every_state_match_the_document(
        self, scene: Scene, deployment: Deployment, api: TestClient
    ) -> None:
        scene(deployment)
        reader = Reader(api)
        reader.everything()
        assert reader.asked > 10

    def test_answers_with_unknown_states_match_the_document(
        self, deployment: Deployment, database: Database, api: TestClient
    ) -> None:
        SCENES[-1](deployment)
        odd = list(written(database.connection))
        deployment.box(*odd)
        for table, column in (
            ("state.agent_inbox", "status"),
            ("state.agent_state_head", "status"),
            ("state.agent_steps", "status"),
            ("state.execution_edges", "edge_phase"),
            ("state.agent_inbox", "enqueue_mode"),
            ("resource.project_agents", "status"),
        ):
            update(database, table, column, "odd")
        for value in ("[1]", '{"a": [1.50]}', "null", '"text"'):
            for table, column in (
                ("state.agent_inbox", "payload"),
                ("state.agent_inbox", "context_headers"),
                ("state.agent_steps", "metadata"),
                ("state.agent_steps", "tool_call_ids"),
                ("state.execution_edges", "metadata"),
                ("resource.project_agents", "tags"),
                ("resource.project_agents", "metadata"),
            ):
                update(database, table, column, value)
            Reader(api).everything()
