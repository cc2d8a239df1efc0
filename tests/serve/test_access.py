"""Who may read what: every address of the app, with no token, a wrong one, another project's, a revoked one."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from cardbox_cli.model.identity import new_token, token_project
from cardbox_cli.serve.access import RateLimiter, check_hosts_and_origins
from cardbox_cli.serve.app import API
from cardbox_cli.serve.serve_options import is_loopback
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.cli.conftest import lines
from tests.conftest import PROJECT, Cbx
from tests.crash.processes import until
from tests.execution.fixtures import Asked
from tests.serve.conftest import Serve

OTHER = "other/projekt ü"


def routes() -> Iterator[APIRoute]:
    """What there is below a project."""
    for each in API:
        for route in each.routes:
            assert isinstance(route, APIRoute)
            yield route


def addresses() -> Iterator[tuple[str, str]]:
    """Every address that is about a project, with its method."""
    for route in routes():
        for method in route.methods:
            yield method, f"/projects/{PROJECT}{re.sub(r'{[^}]*}', 'x', route.path)}"


ADDRESSES = sorted(addresses())


@pytest.fixture
def guarded(serve: Serve) -> TestClient:
    """Whoever asks must show a token."""
    return serve(asks_for_tokens=True)


@pytest.fixture
def token(cbx: Cbx, database: Database) -> str:
    """A token of the project."""
    database.connection.execute(
        "INSERT INTO public.projects (project_id, title, owner_id) VALUES (%s, 't', 'o')", [PROJECT]
    )
    return lines(cbx("token", "create", "--label", "test", "-o", "id"))[0]


def asked(client: TestClient, method: str, address: str, token: str | None) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    response = client.request(method, address, headers=headers, json={} if method == "POST" else None)
    return response.status_code, response.text


def test_the_cases_cover_the_routes_of_the_api() -> None:
    assert len(ADDRESSES) > 17


@pytest.mark.parametrize(("method", "address"), ADDRESSES)
def test_only_a_token_of_the_project_gives_access(
    guarded: TestClient, token: str, method: str, address: str
) -> None:
    for wrong in (None, "", "x", new_token(PROJECT), token[:-1], token + "A"):
        status, text = asked(guarded, method, address, wrong)
        assert status == 401, text
        assert "auth_required" in text
    status, text = asked(guarded, method, address, new_token(OTHER))
    assert (status, "auth_failed" in text) == (403, True)
    if "/events" not in address:
        assert asked(guarded, method, address, token)[0] not in (401, 403, 500)


def test_ids_of_another_project_are_not_found(
    api: TestClient, ask: Asked, context_box: str, boxes: BoxStore
) -> None:
    """Whatever a path, a query or a body may name is named; a new kind of id must be told here."""
    [card_id] = boxes.get(context_box).card_ids
    turn = ask("clerk").agent_turn_id
    named = {
        "box": context_box,
        "turn": turn,
        "agent": "clerk",
        "chat": "c-chat-1",
        "text": "cause",
        "trace": turn,
    }
    ids = {"box_id": context_box, "card_id": card_id, "agent_id": "clerk", "turn_id": turn, "batch_id": "b"}
    bodies = {
        "/cards/batch": {"card_ids": [card_id]},
        "/boxes/batch": {"box_ids": [context_box], "hydrate": True},
    }
    for route in routes():
        path = re.sub(
            r"{(\w+)[^}]*}", lambda found: quote({**ids, "chat_key": "c-chat-1"}[found[1]]), route.path
        )
        if "POST" in route.methods:
            found = api.post(f"/projects/other{path}", json=bodies[path]).json()
            assert [key for key in found if found[key]] == [
                min(key for key in found if key.startswith("missing"))
            ]
            continue
        if path == "/events":
            continue
        known = {each.name for each in route.dependant.query_params} & set(named)
        for query in ({}, *({name: named[name]} for name in known)):
            answer = api.get(f"/projects/other{path}", params=query)
            assert answer.status_code in (400, 404, 422) or answer.json() == [], (path, query, answer.text)


def test_a_token_names_its_project() -> None:
    assert token_project(new_token(OTHER)) == OTHER
    for text in ("", "cbx", "cbx.x", "cbx.cA.", "cbx..x.y", "cbx.\u0661.x", "cbx.//8.x"):
        assert token_project(text) is None


def test_a_revoked_token_is_refused_at_once(cbx: Cbx, guarded: TestClient, token: str) -> None:
    address = f"/projects/{PROJECT}/agents"
    assert asked(guarded, "GET", address, token)[0] == 200
    [known] = cbx("token", "list", "-o", "json").json()
    assert (known["label"], known["revoked_at"], "token" in known) == ("test", None, False)
    assert cbx("token", "revoke", known["token_id"]).code == 0
    assert asked(guarded, "GET", address, token)[0] == 401
    assert cbx("token", "list", "--no-header", "--columns", "state").out == "revoked\n"
    assert cbx("token", "revoke", "nope").code == 3
    actions = [row["action"] for row in cbx("audit", "-o", "json").json()]
    assert actions == ["token revoke", "token create"]


def test_a_stream_ends_when_its_token_is_revoked(cbx: Cbx, start: Callable[..., str], token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=start(asks_for_tokens=True, pause=0.1), headers=headers) as client:
        with client.stream("GET", f"/projects/{PROJECT}/events") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 3000"
            [known] = cbx("token", "list", "-o", "json").json()
            assert cbx("token", "revoke", known["token_id"]).code == 0
            assert [line for line in lines if line] == []
        assert client.get(f"/projects/{PROJECT}/events").status_code == 401


def test_an_expired_token_is_refused(cbx: Cbx, guarded: TestClient, token: str, database: Database) -> None:
    made = cbx("token", "create", "--expires", "1h", "-o", "json").json()
    address = f"/projects/{PROJECT}/agents"
    assert asked(guarded, "GET", address, made["token"])[0] == 200
    database.connection.execute(
        "UPDATE cbx.api_tokens SET expires_at = now() - interval '1 s' WHERE token_id = %s",
        [made["token_id"]],
    )
    assert asked(guarded, "GET", address, made["token"])[0] == 401
    assert cbx("token", "list", "--no-header", "--columns", "state").out == "in force\nexpired\n"


def test_tokens_are_neither_stored_nor_listed(cbx: Cbx, token: str, database: Database) -> None:
    row = database.connection.execute("SELECT to_jsonb(t)::text FROM cbx.api_tokens AS t").fetchone()
    assert row is not None
    secret = token.rpartition(".")[2]
    for text in (row[0], cbx("token", "list", "-o", "json").out, cbx("audit", "-o", "json").out):
        assert secret not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("create", "--expires", "0s"), "--expires: invalid duration '0s'"),
        (("create", "--expires", "2030-01-01"), "--expires: invalid duration '2030-01-01'"),
    ],
)
def test_invalid_options_create_no_token(
    cbx: Cbx, token: str, options: tuple[str, ...], message: str
) -> None:
    refused = cbx("token", *options)
    assert (refused.code, refused.err.splitlines()[0]) == (2, f"error: {message}")


def test_an_unknown_project_gets_no_token(cbx: Cbx) -> None:
    assert cbx("token", "create").code == 3


class TestBrowserLogin:
    ADDRESS = f"/projects/{PROJECT}/agents"

    def log_in(self, client: TestClient, token: str, **fields: str) -> Any:
        return client.post("/login", data={"token": token, **fields}, follow_redirects=False)

    def test_a_token_is_exchanged_for_a_cookie(self, guarded: TestClient, token: str) -> None:
        answer = self.log_in(guarded, f" {token}\n", next="/inspect/p?x=1")
        assert (answer.status_code, answer.headers["location"]) == (303, "/inspect/p?x=1")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Secure" not in cookie
        assert token.rpartition(".")[2] not in cookie
        assert guarded.get(self.ADDRESS).status_code == 200
        assert guarded.get("/projects/other/agents").status_code == 401

    def test_the_cookie_is_secure_behind_tls(self, serve: Serve, token: str) -> None:
        answer = self.log_in(serve(asks_for_tokens=True, behind_tls=True), token)
        assert "Secure" in answer.headers["set-cookie"]

    def test_the_cookie_of_a_revoked_token_is_refused(
        self, cbx: Cbx, guarded: TestClient, token: str
    ) -> None:
        self.log_in(guarded, token)
        [known] = cbx("token", "list", "-o", "json").json()
        assert cbx("token", "revoke", known["token_id"]).code == 0
        assert guarded.get(self.ADDRESS).status_code == 401

    @pytest.mark.parametrize("change", ["id", "time", "signature", "other server", "nonsense"])
    def test_a_forged_cookie_is_refused(
        self, serve: Serve, guarded: TestClient, token: str, change: str
    ) -> None:
        self.log_in(guarded, token)
        [(name, value)] = guarded.cookies.items()
        token_id, until, signature = value.split(".")
        made_up = {
            "id": f"x{token_id}.{until}.{signature}",
            "time": f"{token_id}.{int(until) + 1}.{signature}",
            "signature": f"{token_id}.{until}.{signature[:-2]}AA",
            "other server": value,
            "nonsense": "..",
        }[change]
        client = serve(asks_for_tokens=True) if change == "other server" else guarded
        client.cookies.clear()
        client.cookies.set(name, made_up)
        assert client.get(self.ADDRESS).status_code == 401

    def test_a_wrong_token_shows_the_login_form_again(self, guarded: TestClient, token: str) -> None:
        answer = self.log_in(guarded, "<script>", next='/"><script>')
        assert answer.status_code == 401
        assert '<p role="alert">the token is not valid</p>' in answer.text
        assert "<script>" not in answer.text
        assert "set-cookie" not in answer.headers

    @pytest.mark.parametrize(
        "next", ["//evil.example", "https://evil.example", "/\\evil.example", "x", "/a\nb"]
    )
    def test_a_login_never_redirects_to_another_site(
        self, guarded: TestClient, token: str, next: str
    ) -> None:
        assert self.log_in(guarded, token, next=next).headers["location"] == "/"

    def test_login_and_logout_from_another_origin_are_refused(self, guarded: TestClient, token: str) -> None:
        for path in ("/login", "/logout"):
            answer = guarded.post(
                path, data={"token": token, "project": "p"}, headers={"Origin": "https://evil.example"}
            )
            assert answer.status_code == 403

    def test_logging_out_deletes_the_cookie(self, guarded: TestClient, token: str) -> None:
        self.log_in(guarded, token)
        guarded.post("/logout", data={"project": PROJECT}, follow_redirects=False)
        assert guarded.get(self.ADDRESS).status_code == 401


def test_the_number_of_wrong_tokens_is_limited(guarded: TestClient, token: str) -> None:
    address = f"/projects/{PROJECT}/agents"
    found = [asked(guarded, "GET", address, new_token(PROJECT))[0] for _ in range(25)]
    assert found[:20] == [401] * 20
    assert 429 in found[20:]
    assert asked(guarded, "GET", address, token)[0] == 200


@pytest.mark.parametrize(
    ("shown", "status"),
    [(None, 401), ("x", 401), (new_token(OTHER), 403), (new_token(PROJECT), 503)],
    ids=["none", "no token", "another project's", "perhaps in force"],
)
def test_only_well_formed_tokens_are_looked_up(
    serve: Serve, tmp_path: Path, shown: str | None, status: int
) -> None:
    """Else who has no token could borrow its connections, and leave none to others."""
    away = serve(asks_for_tokens=True, target=Target("host=127.0.0.1 port=1", "a test", tmp_path))
    assert asked(away, "GET", f"/projects/{PROJECT}/agents", shown)[0] == status


def test_after_many_wrong_tokens_lookups_run_one_at_a_time(guarded: TestClient, token: str) -> None:
    address = f"/projects/{PROJECT}/agents"
    assert asked(guarded, "GET", address, token)[0] == 200
    for _ in range(21):
        asked(guarded, "GET", address, new_token(PROJECT))
    doorkeeper = guarded.app.state.authenticator  # type: ignore[attr-defined]  # an app of ours
    with doorkeeper.limit_lookups(new_token(PROJECT)):
        assert asked(guarded, "GET", address, new_token(PROJECT))[0] == 429
        assert guarded.post("/login", data={"token": new_token(PROJECT)}).status_code == 429
        # One that was good before does not wait for others.
        assert asked(guarded, "GET", address, token)[0] == 200


def test_the_limit_of_attempts_recovers_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("cardbox_cli.serve.access.time.monotonic", lambda: now[0])
    attempts = RateLimiter()
    assert [attempts.count_failure() for _ in range(21)] == [True] * 20 + [False]
    now[0] = 1.0
    assert [attempts.count_failure(), attempts.count_failure()] == [True, False]


class TestAllowedHosts:
    @pytest.mark.parametrize("host", ["localhost", "localhost:8099", "127.0.0.1:1", "[::1]:8099"])
    def test_loopback_names_are_allowed_by_default(self, api: TestClient, host: str) -> None:
        assert api.get("/health", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "evil.example:8099",
            "localhost.evil.example",
            "",
            "[::2]",
            "localhost:x",
            "a@localhost",
        ],
    )
    def test_other_host_names_are_refused_by_default(self, api: TestClient, host: str) -> None:
        refused = api.get(f"/projects/{PROJECT}/agents", headers={"Host": host})
        assert refused.status_code == 400
        assert refused.json()["detail"]["error_code"] == "bad_request"
        assert refused.headers["x-content-type-options"] == "nosniff"

    def test_configured_hosts_replace_the_default_hosts(self, serve: Serve) -> None:
        client = serve(hosts=["cbx.example.org"], asks_for_tokens=True)
        assert client.get("/health", headers={"Host": "cbx.example.org"}).status_code == 200
        assert client.get("/health", headers={"Host": "localhost"}).status_code == 400

    def test_a_wildcard_matches_only_subdomains(self, serve: Serve) -> None:
        client = serve(hosts=["*.example.org"], asks_for_tokens=True)
        statuses = [
            client.get("/health", headers={"Host": host}).status_code
            for host in ("a.Example.org:80", "example.org", "aexample.org", "localhost")
        ]
        assert statuses == [200, 400, 400, 400]

    def test_only_configured_origins_get_a_cors_header(self, serve: Serve, api: TestClient) -> None:
        asking = {"Origin": "https://a.example"}
        assert "access-control-allow-origin" not in api.get("/health", headers=asking).headers
        told = serve(origins=["https://a.example"])
        assert (
            told.get("/health", headers=asking).headers["access-control-allow-origin"] == "https://a.example"
        )
        other = told.get("/health", headers={"Origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers

    def test_valid_hosts_and_origins_are_accepted(self) -> None:
        hosts = [
            "*",
            "*.example.org",
            "A.example.org",
            "10.0.0.1",
            "[::1]",
            "my_host",
            "xn--bcher-kva.example",
        ]
        origins = ["*", "null", "http://localhost:3000", "https://[::1]:8443", "chrome-extension://abcdef"]
        check_hosts_and_origins(hosts, origins)

    @pytest.mark.parametrize(
        ("host", "local"),
        [
            ("127.0.0.1", True),
            ("127.8.8.8", True),
            ("::1", True),
            ("localhost", True),
            ("0.0.0.0", False),
            ("::", False),
            ("10.0.0.1", False),
            ("example.org", False),
        ],
    )
    def test_loopback_addresses_are_recognized(self, host: str, local: bool) -> None:
        assert is_loopback(host) is local


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "http://["])
def test_a_form_from_another_site_is_refused(guarded: TestClient, origin: str) -> None:
    response = guarded.post("/login", data={"token": "x"}, headers={"Origin": origin})
    assert response.status_code == 403


@pytest.mark.parametrize(
    "name", ['1.2.3.4 - - [] "GET /x HTTP/1.1" 200 1 0.1', "\x9b31m", "a\tb", "1" * 65, ""]
)
def test_a_client_name_cannot_forge_fields_of_its_log_line(serve: Serve, name: str) -> None:
    """Behind a proxy it is what a header says."""
    lines: list[str] = []
    transport = TestClient(serve(log=lines.append).app, base_url="http://localhost", client=(name, 1))
    transport.get("/health")
    assert [line.partition(" [")[0] for line in lines] == ["- - -"]


def test_the_access_log_contains_no_query_and_no_token(serve: Serve, token: str) -> None:
    lines: list[str] = []
    client = serve(asks_for_tokens=True, log=lines.append)
    asked(client, "GET", f"/projects/{PROJECT}/search?text=secret", token)
    asked(client, "GET", "/projects/a%0Ab%22/agents?x", None)
    client.get("/health", headers={"Host": "evil.example"})
    client.post("/login", data={"token": token}, follow_redirects=False)
    client.get("/" + "x" * 50_000)
    shape = r'testclient - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\] "(.*)" (\d+) \d+ \d+\.\d{3}'
    found = [re.fullmatch(shape, line) for line in lines]
    assert [each and each.groups() for each in found] == [
        (f"GET /projects/{PROJECT}/search HTTP/1.1", "200"),
        ("GET /projects/a%0Ab%22/agents HTTP/1.1", "401"),
        ("GET /health HTTP/1.1", "400"),
        ("POST /login HTTP/1.1", "303"),
        (f"GET /{'x' * 999}… HTTP/1.1", "404"),
    ]
    assert all("secret" not in line and token.rpartition(".")[2] not in line for line in lines)


def test_a_forwarded_for_header_cannot_forge_fields_of_a_log_line(start: Callable[..., str]) -> None:
    lines: list[str] = []
    forged = '9.9.9.9 - - [x] "GET /forged HTTP/1.1" 200'
    base = start(log=lines.append, behind_tls=True, hosts=("127.0.0.1",))
    httpx.get(f"{base}/health", headers={"X-Forwarded-For": forged})
    until(lambda: lines)
    [line] = lines
    assert line.startswith("- - - [")
    assert line.count('"') == 2
