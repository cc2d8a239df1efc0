"""The read API's batches of 100 ids, asked over a connection that stays, against the same SQL run bare."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any, LiteralString
from urllib.parse import urlsplit

from benchmarks.material import drafts
from benchmarks.measure import Row, Side, at_most
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.queries import clocks, query_by_server

_CARDS = 10_000
_IDS = 100
_ROUNDS = 200


@contextmanager
def _served(database: Database) -> Iterator[HTTPConnection]:
    """A connection to a server of its own process."""
    command = [sys.executable, "-m", "cardbox_cli", "--database-url", database.target.conninfo or "", "serve"]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        asking = HTTPConnection(address.hostname or "", address.port)
        try:
            asking.connect()
            yield asking
        finally:
            asking.close()
            process.terminate()


def _ask(asking: HTTPConnection, what: str, body: bytes) -> bytes:
    asking.request("POST", f"/projects/{PROJECT}/{what}/batch", body, {"Content-Type": "application/json"})
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
    with bench.database() as database, bench.connect(database) as other:
        ids = [card.card_id for card in _stored(database)][:: _CARDS // _IDS]
        body, asked = json.dumps({"card_ids": ids}).encode(), {"project_id": PROJECT, "card_ids": ids}
        with _served(database) as asking:
            yield (
                Side(run=lambda: _ask(asking, "cards", body)),
                Side(run=lambda: other.execute(_sql("api_cards"), asked).fetchall()),
            )


@contextmanager
def _boxes(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database, bench.connect(database) as other:
        cards = [card.card_id for card in _stored(database)]
        store = BoxStore(database, PROJECT)
        ids = [store.create(cards[first : first + 20]).box_id for first in range(0, 20 * _IDS, 20)]
        body, asked = json.dumps({"box_ids": ids}).encode(), {"project_id": PROJECT, "box_ids": ids}
        with _served(database) as asking:
            yield (
                Side(run=lambda: _ask(asking, "boxes", body)),
                Side(run=lambda: other.execute(_sql("api_boxes"), asked).fetchall()),
            )


@contextmanager
def _one_by_one(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database, bench.connect(database) as other:
        ids = [card.card_id for card in _stored(database)][:: _CARDS // _IDS]
        body = json.dumps({"card_ids": ids}).encode()

        def each() -> None:
            for card_id in ids:
                other.execute("SELECT * FROM public.cards WHERE card_id = %s", [card_id]).fetchone()

        with _served(database) as asking:
            yield Side(run=lambda: _ask(asking, "cards", body)), Side(run=each)


def _stored(database: Database) -> list[Any]:
    cards = drafts(_CARDS)
    CardStore(database, PROJECT).add_many(cards)
    settle(database)
    return cards


ROWS = [
    Row(
        name="read-cards",
        what="100 cards by POST to the read API",
        against="the same SQL, run bare",
        prepare=_cards,
        target=at_most(2),
        rounds=_ROUNDS,
    ),
    Row(
        name="read-boxes",
        what="100 boxes of 20 ids by POST to the read API",
        against="the same SQL, run bare",
        prepare=_boxes,
        target=at_most(2),
        rounds=_ROUNDS,
    ),
    Row(
        name="read-one-by-one",
        what="100 cards by POST to the read API",
        against="each card by a SELECT of its own, as the card-box library reads them",
        prepare=_one_by_one,
        target=None,
        rounds=_ROUNDS,
    ),
]
