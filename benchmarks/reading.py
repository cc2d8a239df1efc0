"""Batches of 100 ids, asked of a server over a connection that stays, against the same SQL; and a page."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import Any, LiteralString
from urllib.parse import urlsplit

import msgspec
import psycopg

from benchmarks.material import drafts
from benchmarks.measure import Row, Side, at_most
from benchmarks.workbench import PROJECT, Workbench, cbx, settle
from cardbox_cli.serve.api.responses import MAX_BYTES
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.queries import clocks, query_by_server

_CARDS = 10_000
_IDS = 100
_ROUNDS = 100
_SHORT = 100


class Served(msgspec.Struct, frozen=True):
    """A database with cards, a connection to it, and a connection to the server of its read API."""

    database: Database
    ids: list[str]
    plain: psycopg.Connection[Any]
    asking: HTTPConnection


@contextmanager
def _served(bench: Workbench) -> Iterator[Served]:
    with bench.database() as database, bench.connect(database) as plain:
        cards = drafts(_CARDS)
        CardStore(database, PROJECT).add_many(cards)
        settle(database)
        with _serving(bench, database) as address, closing(HTTPConnection(address)) as asking:
            asking.connect()
            yield Served(database, [card.card_id for card in cards], plain, asking)


@contextmanager
def _serving(bench: Workbench, database: Database) -> Iterator[str]:
    """The host and port of a server, which is a process of its own."""
    process = subprocess.Popen(
        cbx("serve", "--port", "0"), stdout=subprocess.PIPE, text=True, env=bench.environment(database)
    )
    with process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        try:
            yield address.netloc
        finally:
            process.terminate()


def _ask(asking: HTTPConnection, what: str, body: bytes) -> bytes:
    asking.request("POST", f"/projects/{PROJECT}/{what}/batch", body, {"Content-Type": "application/json"})
    return _answer(asking)


def _answer(asking: HTTPConnection) -> bytes:
    answer = asking.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise RuntimeError(text.decode())
    return text


def _sql(name: str) -> LiteralString:
    """The query as one server is sent it."""
    return query_by_server(name, clocks(name))


@contextmanager
def _cards(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    served = bench.shared(_served)
    ids = served.ids[:: _CARDS // _IDS]
    body = json.dumps({"card_ids": ids}).encode()
    asked = {"project_id": PROJECT, "card_ids": ids, "most": MAX_BYTES}
    yield (
        Side(run=lambda: _ask(served.asking, "cards", body)),
        Side(run=lambda: served.plain.execute(_sql("api_cards"), asked).fetchall()),
    )


@contextmanager
def _boxes(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    served = bench.shared(_served)
    store = BoxStore(served.database, PROJECT)
    ids = [store.create(served.ids[first : first + 20]).box_id for first in range(0, 20 * _IDS, 20)]
    body, asked = json.dumps({"box_ids": ids}).encode(), {"project_id": PROJECT, "box_ids": ids}
    yield (
        Side(run=lambda: _ask(served.asking, "boxes", body)),
        Side(run=lambda: served.plain.execute(_sql("api_boxes"), asked).fetchall()),
    )


@contextmanager
def _pages(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    served = bench.shared(_served)
    store = BoxStore(served.database, PROJECT)
    long, short = (store.create(served.ids[:size]).box_id for size in (_CARDS, _SHORT))
    settle(served.database)
    yield Side(run=lambda: _open(served.asking, long)), Side(run=lambda: _open(served.asking, short))


def _open(asking: HTTPConnection, box_id: str) -> bytes:
    asking.request("GET", f"/inspect/{PROJECT}/boxes/{box_id}")
    return _answer(asking)


ROWS = [
    Row(
        name="read-cards",
        what="100 cards by POST to the read API",
        against="the same SQL, run bare",
        felt_by="a program that loads contexts by the read API",
        prepare=_cards,
        target=at_most(2),
        rounds=_ROUNDS,
    ),
    Row(
        name="read-boxes",
        what="100 boxes of 20 ids by POST to the read API",
        against="the same SQL, run bare",
        felt_by="a program that loads contexts by the read API",
        prepare=_boxes,
        target=at_most(3),
        rounds=_ROUNDS,
    ),
    Row(
        name="inspect-long-box",
        what=f"the page of a box of {_CARDS:,} cards",
        against=f"that of a box of {_SHORT}",
        felt_by="a person who opens a long box in the inspector",
        prepare=_pages,
        target=at_most(2),
        rounds=40,
    ),
]
