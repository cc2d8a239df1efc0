"""Connections that are there to keep others out, or to fill the memory, by real sockets."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from threading import Event
from urllib.parse import urlsplit

import pytest

from cardbox_cli.model.cards import draft_card
from cardbox_cli.serve.http.connections import Connection
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from tests.conftest import PROJECT

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


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cardbox_cli.serve.http.connections.PATIENCE", 0.2)
    monkeypatch.setattr("cardbox_cli.serve.http.connections._LOOK", 0.05)


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


def test_those_that_ask_nothing_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch, start: Start, request: pytest.FixtureRequest
) -> None:
    for place in ("connections", "server"):
        monkeypatch.setattr(f"cardbox_cli.serve.http.{place}.MOST", 4)
    connect: Open = request.getfixturevalue("connect")
    idle = [connect() for _ in range(8)]
    for each in idle[4:]:
        each.sendall(b"GET / HTTP/1.1\r\nX: ")
    asking = connect()
    asking.sendall(ASK + b"Connection: close\r\n\r\n")
    assert said(asking).startswith(b"HTTP/1.1 200 ")
    # The oldest ones have made room.
    assert said(idle[0]) == b""


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /health HTTP/1.1\r\nX: y", ASK + b"\r\n" + ASK],
    ids=["nothing", "a part", "one and a part"],
)
@pytest.mark.usefixtures("hasty")
def test_one_that_asks_nothing_more_is_ended(connect: Open, begun: bytes) -> None:
    quiet = connect()
    quiet.sendall(begun)
    assert said(quiet).count(b"HTTP/1.1 200 ") == (ASK + b"\r\n" in begun)


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
def test_a_head_without_end_is_refused(connect: Open, begun: bytes, more: bytes) -> None:
    sending = connect()
    sending.sendall(begun)
    assert is_ended(sending, more * 20, times=1000)


def test_requests_that_wait_without_end_are_refused(connect: Open) -> None:
    sending = connect()
    assert is_ended(sending, (ASK + b"\r\n") * 1000, times=2000)


def test_a_few_requests_at_once_are_answered_in_order(connect: Open) -> None:
    asking = connect()
    asking.sendall((ASK + b"\r\n") * 8 + ASK.replace(b"/health", b"/none") + b"Connection: close\r\n\r\n")
    heard = said(asking)
    assert heard.count(b"HTTP/1.1 200 ") == 8
    assert b"HTTP/1.1 404 " in heard.rpartition(b"HTTP/1.1 200 ")[2]


@pytest.mark.usefixtures("hasty")
def test_an_answer_that_nobody_reads_is_given_up(
    connect: Open, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, connection_lost = Event(), Connection.connection_lost

    def tell(self: Connection, exc: Exception | None) -> None:
        connection_lost(self, exc)
        lost.set()

    monkeypatch.setattr(Connection, "connection_lost", tell)
    CardStore(database, PROJECT).add(draft_card("agent.thought", "x" * 12_000_000, card_id="large"))
    asking = connect()
    asking.sendall(f"GET /projects/{PROJECT}/cards/large HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 2)
    assert lost.wait(30)
    assert len(said(asking)) < 24_000_000


def test_a_body_may_be_as_long_as_it_may(connect: Open) -> None:
    body = json.dumps({"card_ids": ["x" * 900_000]}).encode()
    asking = connect()
    head = f"POST /projects/{PROJECT}/cards/batch HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    asking.sendall(
        f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )
    assert said(asking).startswith(b"HTTP/1.1 200 ")


def test_what_is_no_request_leaves_nothing_in_the_log(
    capfd: pytest.CaptureFixture[str], connect: Open
) -> None:
    asker = connect()
    asker.sendall(b"no request\r\n\r\n")
    assert said(asker).startswith(b"HTTP/1.1 400")
    assert "Invalid HTTP request" not in "".join(capfd.readouterr())
