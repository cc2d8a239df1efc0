"""What is said while the database is away: always the same to whoever asks, and its cause once to the log."""

import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from cardbox_cli.errors import DatabaseUnavailable, MissingRight
from cardbox_cli.model.identity import new_token
from cardbox_cli.serve.http.errors import OutageLog
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT
from tests.execution.fixtures import Asked
from tests.serve.conftest import Serve

SECRETS = ("keeper", "vault", "CBX_DATABASE_URL")
AWAY = "the database cannot be reached"


@pytest.fixture
def away(serve: Serve, tmp_path: Path) -> TestClient:
    """A server whose database went away, and that asks for tokens."""
    conninfo = f"host={tmp_path} user=keeper dbname=vault"
    return serve(asks_for_tokens=True, target=Target(conninfo, "CBX_DATABASE_URL", tmp_path))


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "cbx.serve"]


def test_a_client_without_a_token_learns_nothing_about_an_outage(
    away: TestClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = new_token(PROJECT)
    bearer = {"Authorization": f"Bearer {token}"}
    answers: list[Any] = [
        away.get(f"/projects/{PROJECT}/agents", headers=bearer),
        away.get(f"/projects/{PROJECT}/events", headers=bearer),
        away.post(f"/projects/{PROJECT}/cards/batch", headers=bearer, json={"card_ids": []}),
        away.post("/login", data={"token": token}),
        away.get(f"/inspect/{PROJECT}", headers=bearer),
    ]
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert AWAY in answer.text
        assert not [word for word in (*SECRETS, str(tmp_path)) if word in answer.text]
    told = {"error_code": "upstream_unavailable", "error_message": AWAY}
    assert answers[0].json() == {"detail": told}
    [line] = logged(caplog)
    assert all(word in line for word in (*SECRETS, str(tmp_path)))


def test_a_page_reports_an_outage_once(serve: Serve, tmp_path: Path) -> None:
    away = serve(target=Target(f"host={tmp_path}", "a test", tmp_path))
    assert away.get(f"/inspect/{PROJECT}").text.count(AWAY) == 1


def test_a_missing_right_does_not_reveal_the_role(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = serve()

    def refuse(*_: object, **__: object) -> None:
        raise MissingRight("the database role 'keeper' may not read the table vault")

    monkeypatch.setattr(Database, "open_target", refuse)
    answer = client.get(f"/projects/{PROJECT}/agents")
    assert answer.json()["detail"]["error_message"] == "the database role lacks the right to read this"
    assert logged(caplog)


def test_a_statement_timeout_is_not_reported_as_an_outage(
    serve: Serve, ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(statement_timeout=0.05)
    monkeypatch.setattr(
        "cardbox_cli.store.roster.AgentStore.list",
        lambda self, *_, **__: self.database.connection.execute("SELECT pg_sleep(5)"),
    )
    answer = client.get(f"/projects/{PROJECT}/agents")
    assert answer.status_code == 503
    assert answer.json()["detail"]["error_message"] == "reading this exceeds the statement timeout"


def test_each_cause_is_logged_once_until_it_stops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr("cardbox_cli.serve.http.errors.time.monotonic", lambda: now[0])
    seen = OutageLog()
    for _ in range(100):
        now[0] += 30
        seen.log(DatabaseUnavailable("it is away", hint="start it"))
    seen.log(DatabaseUnavailable("another cause"))
    now[0] += 61
    seen.log(DatabaseUnavailable("it is away", hint="start it"))
    assert [line.partition(" (")[0] for line in logged(caplog)] == [
        "it is away: start it",
        "another cause",
        "it is away: start it",
    ]
    assert caplog.records[0].levelno == logging.ERROR
    caplog.clear()
    seen.log(DatabaseUnavailable("x" * 1_000_000))
    [line] = logged(caplog)
    assert len(line) < 1100
