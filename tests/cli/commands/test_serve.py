"""`cbx serve` as a process: where it listens, what it streams, how it ends."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import PATIENCE, Shell
from tests.conftest import PROJECT, Cbx
from tests.execution.fixtures import Asked

ADDRESS = f"/projects/{PROJECT}"


@contextmanager
def served(shell: Shell, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """A server on any free port, and a client of it."""
    with shell.started("serve", "--port", "0", *options) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        base, _, path = line.strip().partition("/inspect/")
        assert path == PROJECT
        with httpx.Client(base_url=base, timeout=PATIENCE) as client:
            _until_it_answers(client)
            yield process, client
        if process.poll() is None:
            process.kill()


def _until_it_answers(client: httpx.Client) -> None:
    for _ in range(5000):
        try:
            client.get("/health")
        except httpx.ConnectError:
            time.sleep(0.02)
        else:
            return
    pytest.fail("it does not answer")


def test_the_server_answers_until_ctrl_c(shell: Shell) -> None:
    with served(shell) as (process, client):
        assert client.get(f"{ADDRESS}/agents").json() == []
        assert client.get("/health", headers={"Host": "evil.example"}).status_code == 400
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert b"Traceback" not in err


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_open_streams_do_not_delay_the_shutdown(
    shell: Shell, ask: Asked, sent: signal.Signals, code: int
) -> None:
    # Answers that are being sent had three seconds. A busy machine may take as long, but not each time.
    assert any(seconds_to_end(shell, sent, code) < 3 for _ in range(5))


def seconds_to_end(shell: Shell, sent: signal.Signals, code: int) -> float:
    """How long a server takes to end by a signal while somebody follows."""
    with served(shell) as (process, client), client.stream("GET", f"{ADDRESS}/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "retry: 3000"
        began = time.monotonic()
        process.send_signal(sent)
        assert [line for line in lines if line] == []
        _, err = process.communicate(timeout=PATIENCE)
        seconds = time.monotonic() - began
        assert (process.returncode, err.strip()) == (code, b"interrupted" if code == 130 else b"")
        return seconds


def test_an_unread_response_is_cut_off_at_shutdown(shell: Shell, database: Database) -> None:
    CardStore(database, PROJECT).add(draft_card("agent.thought", "x" * 12_000_000, card_id="large"))
    with served(shell) as (process, client):
        place = (client.base_url.host, client.base_url.port)
        with socket.create_connection(place, timeout=PATIENCE) as asking:
            asking.sendall(f"GET {ADDRESS}/cards/large HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 2)
            assert asking.recv(1)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err.strip()) == (130, b"interrupted")


def test_changes_are_streamed_and_no_stream_blocks_the_shutdown(shell: Shell, ask: Asked) -> None:
    with served(shell) as (process, client), client.stream("GET", f"{ADDRESS}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert next(lines) == "retry: 3000"
        turn = ask("clerk").agent_turn_id
        told = next(line for line in lines if line.startswith("data: "))
        head = json.loads(told.removeprefix("data: "))
        assert (head["agent_id"], head["agent_turn_id"], head["status"]) == ("clerk", turn, "dispatched")
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE)


def test_a_stream_ends_with_the_token_that_opened_it(shell: Shell, cbx: Cbx, ask: Asked) -> None:
    made = cbx("token", "create", "-o", "json").json()
    bearer = {"Authorization": f"Bearer {made['token']}"}
    with served(shell, "--require-token") as (process, client):
        with client.stream("GET", f"{ADDRESS}/events", headers=bearer) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 3000"
            assert cbx("token", "revoke", made["token_id"]).code == 0
            assert not any(line.startswith("data: ") for line in lines)
        assert client.get(f"{ADDRESS}/events", headers=bearer).status_code == 401
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE)
        assert err == b""


def test_a_port_in_use_is_an_error(shell: Shell) -> None:
    with served(shell) as (_, client):
        port = str(client.base_url.port)
        refused = shell.run("serve", "--port", port)
        assert refused.code == 2
        assert refused.err.startswith(f"error: cannot listen on 127.0.0.1:{port}: Address already in use")
        assert "pass another port with --port" in refused.err


def test_an_address_of_another_machine_is_an_error(shell: Shell) -> None:
    refused = shell.run("serve", "--host", "203.0.113.1", "--port", "0")
    assert refused.code == 2
    assert "error: cannot listen on 203.0.113.1:0: " in refused.err
    assert "hint: pass an address of this machine with --host" in refused.err


@pytest.mark.parametrize(
    "options",
    [
        ("--host", "0.0.0.0"),
        ("--behind-tls",),
        ("--allowed-host", "a.example", "--allowed-host", "127.0.0.1"),
    ],
)
def test_a_reachable_server_requires_tokens(
    shell: Shell, cbx: Cbx, ask: Asked, options: tuple[str, ...]
) -> None:
    with served(shell, *options) as (_, client):
        asking = httpx.URL(str(client.base_url).replace("0.0.0.0", "127.0.0.1"))
        assert httpx.get(asking.join(f"{ADDRESS}/agents")).status_code == 401
        token = cbx("token", "create", "-o", "id").out.strip()
        answer = httpx.get(asking.join(f"{ADDRESS}/agents"), headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("option", "value", "fault"),
    [
        ("--cors-origin", "foo", "invalid origin"),
        ("--cors-origin", "https://app.example.org/", "invalid origin"),
        ("--cors-origin", "https://App.example.org", "invalid origin"),
        ("--cors-origin", "https://app.example.org:443", "invalid origin"),
        ("--cors-origin", "https://*.example.org", "invalid origin"),
        ("--allowed-host", "http://x/", "invalid host name"),
        ("--allowed-host", "x:8099", "invalid host name"),
        ("--allowed-host", "::1", "invalid host name"),
        ("--allowed-host", "a.*.org", "invalid host name"),
        ("--allowed-host", "", "invalid host name"),
    ],
)
def test_invalid_origins_and_host_names_are_refused(cbx: Cbx, option: str, value: str, fault: str) -> None:
    refused = cbx("serve", "--port", "0", option, value)
    assert refused.code == 2
    assert refused.err.startswith(f"error: {option}: {fault} {value!r}\nhint: ")


def test_a_database_without_the_token_table_is_an_error(cbx: Cbx, database: Database) -> None:
    database.script("DROP TABLE cbx.api_tokens")
    refused = cbx("serve", "--port", "0", "--require-token")
    assert refused.code == 7
    assert refused.err.splitlines() == [
        "error: the database has no table cbx.api_tokens",
        "hint: add it with `cbx db init --yes`",
    ]
