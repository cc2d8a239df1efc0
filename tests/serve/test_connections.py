"""What bounds connections, heads and streams, by real sockets."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest

from cardbox_cli.serve.http import server
from tests.conftest import PROJECT
from tests.crash.processes import until

Start = Callable[..., str]
Open = Callable[[], socket.socket]

ASK = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def connect(start: Start) -> Iterator[Open]:
    """Connections to one server, which wait at most so long for what it says."""
    place = urlsplit(start())
    with ExitStack() as stack:

        def connect() -> socket.socket:
            made = socket.create_connection((place.hostname or "", place.port or 0), timeout=120)
            return stack.enter_context(closing(made))

        yield connect


def said(connection: socket.socket) -> bytes:
    """All that the server says until it ends the connection, be it kindly or not."""
    heard = b""
    try:
        while piece := connection.recv(1 << 16):
            heard += piece
    except ConnectionResetError:
        pass
    return heard


def is_ended(connection: socket.socket, data: bytes, *, times: int) -> bool:
    """Whether the server ends it before so many times the data are sent."""
    try:
        for _ in range(times):
            connection.sendall(data)
    except OSError:
        return True
    return False


def test_an_idle_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", 0.1)
    connect: Open = request.getfixturevalue("connect")
    quiet = connect()
    quiet.sendall(ASK + b"\r\n")
    assert said(quiet).count(b"HTTP/1.1 200 ") == 1


def test_a_connection_beyond_the_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    connect: Open = request.getfixturevalue("connect")
    held = [connect(), connect()]
    for each in held:
        each.sendall(ASK + b"\r\n")
        assert each.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    refused = connect()
    refused.sendall(ASK + b"\r\n")
    assert said(refused).startswith(b"HTTP/1.1 503 ")
    held[0].close()
    until(lambda: is_answered(connect()))


def is_answered(connection: socket.socket) -> bool:
    connection.sendall(ASK + b"Connection: close\r\n\r\n")
    return said(connection).startswith(b"HTTP/1.1 200 ")


def test_simultaneous_streams_cannot_exceed_the_limit(start: Start) -> None:
    """However many ask in one moment."""
    place = urlsplit(start(streams=2))
    ask = f"GET /projects/{PROJECT}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as stack:
        asking = [
            stack.enter_context(
                closing(socket.create_connection((place.hostname or "", place.port or 0), 30))
            )
            for _ in range(12)
        ]
        for each in asking:
            each.sendall(ask)
        answers = [each.recv(12) for each in asking]
    assert sorted(answers) == [b"HTTP/1.1 200"] * 2 + [b"HTTP/1.1 503"] * 10


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (ASK + b"X: ", b"x" * 1000),
        (ASK, b"x: y\r\n" * 100),
        (b"GET /", b"x" * 1000),
        (
            b"POST /login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            b"x: y\r\n" * 99,
        ),
    ],
    ids=["value", "names", "address", "trailers"],
)
def test_endless_headers_are_refused(connect: Open, begun: bytes, more: bytes) -> None:
    sending = connect()
    sending.sendall(begun)
    assert is_ended(sending, more * 20, times=1000)


def test_pipelined_requests_are_answered_in_order(connect: Open) -> None:
    asking = connect()
    asking.sendall((ASK + b"\r\n") * 8 + ASK.replace(b"/health", b"/none") + b"Connection: close\r\n\r\n")
    heard = said(asking)
    assert heard.count(b"HTTP/1.1 200 ") == 8
    assert b"HTTP/1.1 404 " in heard.rpartition(b"HTTP/1.1 200 ")[2]


def test_a_body_may_have_the_maximum_length(connect: Open) -> None:
    body = json.dumps({"card_ids": ["x" * 900_000]}).encode()
    asking = connect()
    head = f"POST /projects/{PROJECT}/cards/batch HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    asking.sendall(
        f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )
    assert said(asking).startswith(b"HTTP/1.1 200 ")


def test_malformed_requests_are_not_logged(capfd: pytest.CaptureFixture[str], connect: Open) -> None:
    asker = connect()
    asker.sendall(b"no request\r\n\r\n")
    assert said(asker).startswith(b"HTTP/1.1 400")
    assert "Invalid HTTP request" not in "".join(capfd.readouterr())
