"""What cannot be shown is a page that says why: nothing there, nothing that may be read, no database."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.ids import short_id
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.roster import AgentStore
from tests.serve.conftest import Serve
from tests.serve.page.conftest import START
from tests.serve.page.reader import check


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/turns/turn_x", 404, "no turn 'turn_x' in project 'p'"),
        ("/boxes/none", 404, "no box 'none'"),
        ("/cards/a%00b", 404, "'a\\x00b' cannot be a name"),
        ("/search?q=a%00b", 400, "NUL"),
        ("/cards/<script>", 404, "no card '<script>'"),
        ("/agents/nobody", 404, "no agent 'nobody'"),
        ("/batches/batch_x", 404, "no batch 'batch_x'"),
        ("/chat?key=none", 404, "no chat 'none'"),
        ("/chat", 400, "key"),
        ("/find?id=none", 404, "no object with id 'none' in project 'p'"),
        ("/request", 400, "exactly one of turn, agent, chat, box is required"),
        ("/request?turn=a&box=b", 400, "exactly one of turn, agent, chat, box is required"),
        ("/cost", 400, "exactly one of turn, agent, chat, box is required"),
        ("/diff?turn=turn_x&a=1&b=2", 404, "no turn"),
        ("/boxes?behind=yesterday", 400, "invalid list position"),
        ("/boxes?behind=2026-01-01T00:00:00%2B00:00~x", 400, "invalid list position"),
        ("?behind=2026-01-01~x", 400, "invalid list position"),
        ("/boxes/x?from=-1", 400, "from"),
        ("?status=nope", 400, "unknown status 'nope'"),
        ("?status=nope", 400, "Use one of queued, pending, dispatched, running, suspended, ended."),
        ("/boxes?kind=nope", 400, "unknown box kind 'nope'"),
        ("/elsewhere", 404, "no page"),
    ],
)
def test_failures_are_shown_as_html_pages(
    runtime: Runtime, api: TestClient, path: str, status: int, says: str
) -> None:
    answer = api.get(START + path)
    assert answer.status_code == status, answer.text[-300:]
    assert "text/html" in answer.headers["content-type"]
    assert says in check(answer.text).text


def test_errors_of_the_api_are_json_not_pages(api: TestClient) -> None:
    assert api.get("/projects/p/boxes/none").json()["detail"]["error_code"] == "not_found"


def test_an_unknown_project_is_not_shown_as_healthy(runtime: Runtime, api: TestClient) -> None:
    page = api.get("/inspect/nope")
    assert page.status_code == 404
    assert "no project 'nope'" in check(page.text).text
    listed = api.get("/inspect/nope/agents")
    assert (listed.status_code, "unknown project nope" in check(listed.text).text) == (200, True)


def test_pages_show_only_their_own_project(project: Runtime, api: TestClient) -> None:
    turns = re.findall(r"/turns/(turn_[0-9a-f]+)", api.get(START).text)
    assert turns
    other = START.replace("/p", "/q")
    for path in (
        f"/turns/{turns[0]}",
        f"/request?turn={turns[0]}",
        f"/cost?turn={turns[0]}",
        f"/find?id={turns[0]}",
    ):
        assert api.get(other + path).status_code == 404, path
    assert short_id(turns[0]) not in api.get(other).text


def test_a_page_reports_an_unreachable_database(serve: Serve, tmp_path: Path) -> None:
    answer = serve(target=Target("host=127.0.0.1 port=1", "a test", tmp_path)).get(START)
    assert answer.status_code == 503
    assert "The database cannot be read" in check(answer.text).text


def test_a_page_without_a_token_shows_the_login_form(runtime: Runtime, serve: Serve) -> None:
    answer = serve(asks_for_tokens=True).get(f"{START}/agents?after=x")
    assert answer.status_code == 401
    read = check(answer.text)
    assert ("action", "/login") in read.attributes
    assert ("value", f"{START}/agents?after=x") in read.attributes
    assert "clerk" not in read.text


def test_an_unexpected_error_is_logged_and_its_page_hides_the_message(
    runtime: Runtime, api: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret of the house")

    monkeypatch.setattr(AgentStore, "entry", fail)
    answer = api.get(f"{START}/agents/clerk")
    assert answer.status_code == 500
    assert "the server failed; its log says why" in check(answer.text).text
    assert "secret" not in answer.text
    assert "a secret of the house" in caplog.text
