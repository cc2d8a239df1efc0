"""The further views of the API: what commands answer with -o json, page by page, harmless whatever is stored."""

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.testclient import TestClient
from starlette.types import Message

from cardbox_cli.chat.transcript import send
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.content import JsonContent
from cardbox_cli.serve.api import execution_routes
from cardbox_cli.serve.change_feed import ChangeFeed
from cardbox_cli.serve.http import middleware
from cardbox_cli.serve.http.project_access import ProjectRequest
from cardbox_cli.settings import Settings
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.store.connection import connection_pool
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.notifications import notify
from cardbox_cli.store.views.recent_changes import ChangeViews
from tests.cli.conftest import succeed
from tests.conftest import PROJECT, Cbx
from tests.crash.processes import until
from tests.execution.fixtures import Asked
from tests.serve.conftest import Serve

BASE = f"/projects/{PROJECT}"


class TestCommandAnswers:
    @pytest.fixture
    def turn(self, ask: Asked) -> str:
        return ask("clerk").agent_turn_id

    @pytest.mark.parametrize(
        ("address", "command"),
        [
            ("/agents", ("agent", "list")),
            ("/agents/clerk", ("agent", "show", "clerk")),
            ("/agents/clerk/why", ("why", "--agent", "clerk")),
            ("/turns", ("turn", "list")),
            ("/turns?agent=clerk&status=dispatched", ("turn", "list")),
            ("/turns/{turn}", ("turn", "show", "{turn}")),
            ("/turns/{turn}/why", ("why", "{turn}")),
            ("/why", ("why", "--all")),
            ("/inbox", ("inbox", "list")),
            ("/batches", ("batch", "list")),
            ("/chats", ("chat", "list")),
            ("/cost?turn={turn}", ("cost", "{turn}")),
            ("/search?text=cause", ("card", "search", "cause")),
        ],
    )
    def test_the_answer_equals_the_output_of_the_command(
        self, api: TestClient, cbx: Cbx, turn: str, address: str, command: tuple[str, ...]
    ) -> None:
        words = [word.format(turn=turn) for word in command]
        said = json.loads(cbx(*words, "-o", "json").out)
        answer = api.get(BASE + address.format(turn=turn))
        assert answer.status_code == 200
        assert answer.json() == said

    def test_a_rendered_request_includes_its_explanation(self, api: TestClient, cbx: Cbx, turn: str) -> None:
        found = api.get(f"{BASE}/render", params={"turn": turn}).json()
        body = json.loads(succeed(cbx("render", "--turn", turn, "-o", "json")))
        explained = json.loads(succeed(cbx("render", "--turn", turn, "--explain", "-o", "json")))
        assert found["body"] == body
        assert found["explanation"] == explained["explanation"]

    @pytest.mark.parametrize(
        ("address", "status", "message"),
        [
            ("/turns/turn_nope", 404, "no turn 'turn_nope' in project 'p'"),
            ("/agents/nobody", 404, "no agent 'nobody' in project 'p'"),
            ("/batches/nope", 404, "no batch 'nope' in project 'p'"),
            ("/render", 400, "exactly one of box, turn, agent, chat is required"),
            ("/render?box=a&turn=b", 400, "exactly one of box, turn, agent, chat is required"),
            ("/render?box=a&format=nope", 400, "unknown format 'nope'"),
            ("/turns?behind=x", 400, "invalid list position 'x'"),
            ("/search", 422, "query.text: Field required"),
            ("/turns?status=nope", 422, "query.status: Input should be 'queued', 'pending', 'dispatched'"),
            ("/inbox?status=zz", 422, "query.status: Input should be 'queued', 'pending', 'processing'"),
            ("/batches?status=zz", 422, "query.status: Input should be 'running', 'success', 'failed'"),
        ],
    )
    def test_an_invalid_request_gets_a_specific_error(
        self, api: TestClient, turn: str, address: str, status: int, message: str
    ) -> None:
        answer = api.get(BASE + address)
        assert answer.status_code == status
        assert answer.json()["detail"]["error_message"].startswith(message)


@pytest.mark.parametrize("path", ["why", "agents/a/why", "turns/t/why"])
def test_an_unknown_project_gets_no_verdict(api: TestClient, ask: Asked, path: str) -> None:
    answer = api.get(f"/projects/nope/{path}")
    assert (answer.status_code, answer.json()["detail"]["error_code"]) == (404, "not_found")
    assert "project 'nope'" in answer.json()["detail"]["error_message"]
    # As commands list them.
    for name in ("agents", "turns", "inbox", "batches", "chats", "search?text=x"):
        assert api.get(f"/projects/nope/{name}").json() == []


def test_a_page_of_a_list_begins_after_the_previous_one(api: TestClient, ask: Asked) -> None:
    wanted = [ask("clerk").agent_turn_id for _ in range(5)][::-1]
    found, address = [], f"{BASE}/turns?limit=2&agent=clerk"
    while address:
        page = api.get(address)
        found += [turn["agent_turn_id"] for turn in page.json()]
        address = page.links.get("next", {}).get("url", "")
    assert found == wanted


@pytest.mark.parametrize(
    ("list_", "key", "count"), [("agents", "agent_id", 2), ("inbox", "inbox_id", 5), ("chats", "chat_key", 3)]
)
def test_pages_of_other_lists_begin_after_the_previous_one(
    api: TestClient, ask: Asked, runtime: Runtime, list_: str, key: str, count: int
) -> None:
    room = ChatStores(runtime.database, PROJECT, Settings())
    for number in range(5):
        ask("clerk")
        if number < 3:
            send(room, f"c-chat-{number}", "Hello.")
    whole = [each[key] for each in api.get(f"{BASE}/{list_}").json()]
    assert len(whole) == count
    found, address = [], f"{BASE}/{list_}?limit=1"
    while address:
        page = api.get(address)
        found += [each[key] for each in page.json()]
        address = page.links.get("next", {}).get("url", "")
    assert found == whole


def test_the_search_finds_only_matching_cards(api: TestClient, cards: CardStore) -> None:
    cards.add(draft_card("agent.thought", "The Deploy failed", card_id="one"))
    cards.add(draft_card("agent.thought", "all is well", card_id="two"))
    found = api.get(f"{BASE}/search", params={"text": "deploy"}).json()
    assert [card["card_id"] for card in found] == ["one"]
    assert api.get("/projects/other/search", params={"text": "deploy"}).json() == []


class TestHostileInput:
    @pytest.mark.parametrize(
        "data",
        [
            "<script>alert(1)</script>",
            "\x1b[2J\x1b]0;x\x07",
            "\u202e\u2066 bidi",
            "x" * 3_000_000,
            {"deep": json.loads("[" * 390 + "]" * 390)},
        ],
        ids=["script", "escapes", "bidi", "long", "deep"],
    )
    def test_hostile_card_data_is_returned_as_json(
        self, api: TestClient, cards: CardStore, boxes: BoxStore, data: Any
    ) -> None:
        cards.add(draft_card("x", JsonContent(data), card_id="odd"))
        box = boxes.create(["odd"]).box_id
        for address in ("/cards/odd", f"/boxes/{box}/cards", f"/render?box={box}", "/search?text=x"):
            answer = api.get(BASE + address)
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert api.get(f"{BASE}/cards/odd").json()["content"]["data"] == data

    def test_a_body_that_is_too_long_is_refused(self, api: TestClient) -> None:
        answer = api.post(f"{BASE}/cards/batch", content=b'{"card_ids": ["' + b"x" * 2_000_000 + b'"]}')
        assert (answer.status_code, answer.json()["detail"]["error_code"]) == (413, "bad_request")

    @pytest.mark.parametrize(
        "body",
        [b"9" * 5000, b'{"card_ids": [' + b"9" * 5000 + b"]}", b"[" * 100_000, b"\xff", b"{"],
        ids=["number", "number-within", "deep", "no-text", "cut"],
    )
    def test_a_malformed_body_is_refused(self, api: TestClient, body: bytes) -> None:
        told = {"Content-Type": "application/json"}
        answer = api.post(f"{BASE}/cards/batch", content=body, headers=told)
        assert (answer.status_code, answer.json()["detail"]["error_code"]) == (422, "invalid_request")

    def test_a_body_that_never_arrives_times_out(self, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(middleware, "BODY_SECONDS", 0.01)
        sent: list[Message] = []

        async def never() -> Message:
            await anyio.sleep_forever()
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": f"{BASE}/cards/batch",
            "headers": [(b"host", b"localhost")],
        }
        anyio.run(serve().app, scope, never, send)
        assert sent[0]["status"] == 408

    def test_a_hostile_name_is_not_found(self, api: TestClient) -> None:
        for name in ("%00", "%ff", "..%2f..%2fetc", "'; DROP TABLE cards; --"):
            for kind in ("cards", "boxes", "agents", "turns", "batches", "chats"):
                assert api.get(f"{BASE}/{kind}/{name}").status_code == 404
            for kind in ("agents", "turns"):
                assert api.get(f"{BASE}/{kind}/{name}/why").status_code == 404
        for path in ("why", "agents", "cards/x", "events"):
            assert api.get(f"/projects/%00/{path}").status_code == 404
        assert api.post("/projects/%00/cards/batch", json={"card_ids": ["x"]}).status_code == 404


def test_a_snapshot_connection_cannot_write(serve: Serve, database: Database) -> None:
    client = serve()
    client.get(f"{BASE}/agents")
    with client.app.state.connections.snapshot() as lent:  # type: ignore[attr-defined]  # a FastAPI app has a state
        for statement in ("DELETE FROM public.cards", "CREATE TABLE x ()", "SELECT nextval('nope')"):
            with pytest.raises(Exception, match=r"read-only|does not exist|current transaction is aborted"):
                lent.connection.execute(statement)


def test_an_autocommit_connection_cannot_write(serve: Serve, cards: CardStore) -> None:
    cards.add(draft_card("agent.thought", "text", card_id="one"))
    client = serve()
    with client.app.state.connections.autocommit() as lent:  # type: ignore[attr-defined]  # a FastAPI app has a state
        assert lent.idle
        with pytest.raises(Exception, match="read-only"):
            lent.connection.execute("DELETE FROM public.cards")
        assert lent.idle


def test_a_statement_that_takes_too_long_is_canceled(serve: Serve) -> None:
    client = serve(statement_timeout=0.05)
    lending = client.app.state.connections  # type: ignore[attr-defined]  # a FastAPI app has a state
    with pytest.raises(Exception, match="statement timeout"), lending.snapshot() as lent:
        lent.connection.execute("SELECT pg_sleep(5)")
    until(lambda: client.get(f"{BASE}/agents").status_code == 200)


def test_the_server_reconnects_after_an_outage(serve: Serve, database: Database) -> None:
    client = serve(connections=2)
    assert client.get(f"{BASE}/agents").status_code == 200
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    database.connection.execute(f"SELECT pg_terminate_backend(pid) {others}".encode())
    until(lambda: database.connection.execute(f"SELECT count(*) {others}".encode()).fetchone() == (0,))
    assert client.get(f"{BASE}/agents").status_code == 200


def test_a_request_without_a_free_connection_is_refused(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(connections=1)
    connections = client.app.state.connections  # type: ignore[attr-defined]  # a FastAPI app has a state
    monkeypatch.setattr(connection_pool, "_TIMEOUT_SECONDS", 0.05)
    with connections.snapshot():
        answer = client.get(f"{BASE}/agents")
    assert (answer.status_code, answer.json()["detail"]["error_code"]) == (503, "upstream_unavailable")
    assert client.get(f"{BASE}/agents").status_code == 200


def test_the_number_of_event_streams_is_limited_and_recovers(start: Callable[..., str], ask: Asked) -> None:
    with httpx.Client(base_url=start(streams=1)) as client:
        address = f"{BASE}/events"

        def is_open() -> bool:
            with client.stream("GET", address) as again:
                return again.status_code == 200 and next(again.iter_lines(), "") != ""

        with client.stream("GET", address) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 3000"
            ask("clerk")
            assert next(line for line in lines if line) == "event: head"
            refused = client.get(address)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        until(is_open)


def test_a_notified_change_is_sent_at_once(start: Callable[..., str], ask: Asked, database: Database) -> None:
    with httpx.Client(base_url=start(pause=3600)) as client, client.stream("GET", f"{BASE}/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "retry: 3000"
        ask("clerk")
        notify(database, (PROJECT, "worker_generic"))
        assert next(line for line in lines if line) == "event: head"
        assert '"status":"dispatched"' in next(lines)


def test_a_quiet_stream_sends_comments(start: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_routes, "MAX_WAIT_SECONDS", 0.1)
    with (
        httpx.Client(base_url=start(pause=0.01)) as client,
        client.stream("GET", f"{BASE}/events") as stream,
    ):
        assert next(line for line in stream.iter_lines() if line.startswith(":")) == ": nothing new"


def test_a_project_is_read_once_for_all_its_event_streams(
    serve: Serve, ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    look = ChangeViews.poll
    monkeypatch.setattr(ChangeViews, "poll", lambda self: looks.append(self.project_id) or look(self))
    app = serve(pause=3600).app
    following: ChangeFeed = app.state.feed  # type: ignore[attr-defined]  # a FastAPI app has a state
    monkeypatch.setattr(following, "_listen", lambda: None)

    async def several() -> None:
        request = Request({"type": "http", "app": app})
        async with AsyncExitStack() as stack:
            many = [
                await stack.enter_async_context(following.follow(ProjectRequest(request, name)))
                for name in (PROJECT, PROJECT, "other")
            ]
            first = [await follower.read_state() for follower in many]
            assert (looks, first[0] is first[1]) == ([PROJECT, "other"], True)
            ask("clerk")
            assert await many[0].read_state() is first[0]
            following._note_change()
            assert [await follower.wait_for_change() for follower in many] == [True, True, True]
            [(kind, head)] = (await many[0].read_state()).changes_since(first[0])
            assert (kind, head.agent_id, head.status) == ("head", "clerk", "dispatched")
            assert (await many[1].read_state(), looks) == (
                await many[0].read_state(),
                [PROJECT, "other", PROJECT],
            )
        assert following._projects == {}

    anyio.run(several)


ODD = "a/b ü/日本?%2F"


def test_names_with_special_characters_have_addresses(api: TestClient, database: Database) -> None:
    base = f"/projects/{quote(ODD, safe='')}"
    for number in range(3):
        database.connection.execute(
            "INSERT INTO public.cards (tenant_id, card_id, content, metadata) VALUES (%s, %s, '{}', '{}')",
            [ODD, f"c/{number}?"],
        )
    assert api.get(f"{base}/cards/c%2f1%3F").json()["card_id"] == "c/1?"
    assert api.get(f"{base}/cards/c%2F1").status_code == 404
    assert api.get(f"/projects/{quote(ODD)}/cards/c%2F1%3F").status_code == 404
    found = api.post(f"{base}/cards/batch", json={"card_ids": ["c/2?"]}).json()
    assert [card["project_id"] for card in found["cards"]] == [ODD]
    assert api.get(f"{base}/agents/a%2Fb/why").json()["detail"]["error_message"].startswith("no agent 'a/b'")


def test_lists_of_a_project_with_special_characters_have_addresses(
    api: TestClient, database: Database
) -> None:
    address = f"/projects/{quote(ODD, safe='')}/search?text=find&limit=1"
    for number in range(3):
        CardStore(database, ODD).add(draft_card("agent.thought", "find it", card_id=str(number)))
    found = []
    while address:
        answer = api.get(address)
        found += [card["card_id"] for card in answer.json()]
        address = answer.links.get("next", {}).get("url", "")
    assert sorted(found) == ["0", "1", "2"]
    page = api.get(f"/inspect/{quote(ODD, safe='')}?status=running")
    assert f'hx-get="/inspect/{quote(ODD, safe="")}?status=running"' in page.text


def test_an_unexpected_error_is_logged_once_and_reveals_nothing(
    api: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("cardbox_cli.serve.api.context_routes.ApiViews", fail)
    # What is raised again, the server would log again.
    answer = TestClient(api.app, base_url="http://localhost").get(f"{BASE}/cards/%1b%0A")
    assert (answer.status_code, answer.json()["detail"]["error_code"]) == (500, "internal_error")
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == [
        f"GET {BASE}/cards/%1b%0A failed"
    ]
