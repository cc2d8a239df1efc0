"""Batches of 100 ids, asked of a server over a connection that stays, against the same SQL; and a page."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from typing import Any, LiteralString
from urllib.parse import urlsplit

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
_ROUNDS = 200
_SHORT = 100


@contextmanager
def served(bench: Workbench, database: Database, *, cores: Sequence[int] = ()) -> Iterator[str]:
    """Where a server of its own process answers, on these cores, or on any."""
    process = subprocess.Popen(
        cbx("serve", "--port", "0"),
        stdout=subprocess.PIPE,
        text=True,
        env=bench.environment(database),
        preexec_fn=partial(os.sched_setaffinity, 0, cores) if cores else None,
    )
    with process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        try:
            yield f"http://{address.netloc}"
        finally:
            process.terminate()


@contextmanager
def _asking(bench: Workbench, database: Database) -> Iterator[HTTPConnection]:
    """A connection to a server that stays."""
    with served(bench, database) as address, closing(HTTPConnection(urlsplit(address).netloc)) as asking:
        asking.connect()
        yield asking


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
    with bench.database() as database, bench.connect(database) as other:
        ids = [card.card_id for card in stored(database)][:: _CARDS // _IDS]
        body = json.dumps({"card_ids": ids}).encode()
        asked = {"project_id": PROJECT, "card_ids": ids, "most": MAX_BYTES}
        with _asking(bench, database) as asking:
            yield (
                Side(run=lambda: _ask(asking, "cards", body)),
                Side(run=lambda: other.execute(_sql("api_cards"), asked).fetchall()),
            )


@contextmanager
def _boxes(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database, bench.connect(database) as other:
        cards = [card.card_id for card in stored(database)]
        store = BoxStore(database, PROJECT)
        ids = [store.create(cards[first : first + 20]).box_id for first in range(0, 20 * _IDS, 20)]
        body, asked = json.dumps({"box_ids": ids}).encode(), {"project_id": PROJECT, "box_ids": ids}
        with _asking(bench, database) as asking:
            yield (
                Side(run=lambda: _ask(asking, "boxes", body)),
                Side(run=lambda: other.execute(_sql("api_boxes"), asked).fetchall()),
            )


@contextmanager
def _one_by_one(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database, bench.connect(database) as other:
        ids = [card.card_id for card in stored(database)][:: _CARDS // _IDS]
        body = json.dumps({"card_ids": ids}).encode()

        def each() -> None:
            for card_id in ids:
                other.execute("SELECT * FROM public.cards WHERE card_id = %s", [card_id]).fetchone()

        with _asking(bench, database) as asking:
            yield Side(run=lambda: _ask(asking, "cards", body)), Side(run=each)


def stored(database: Database) -> list[Any]:
    """The cards that are read, as they were written."""
    cards = drafts(_CARDS)
    CardStore(database, PROJECT).add_many(cards)
    settle(database)
    return cards


@contextmanager
def _pages(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database:
        cards = [card.card_id for card in stored(database)]
        store = BoxStore(database, PROJECT)
        long, short = (store.create(cards[:size]).box_id for size in (_CARDS, _SHORT))
        settle(database)
        with _asking(bench, database) as asking:
            yield Side(run=lambda: _open(asking, long)), Side(run=lambda: _open(asking, short))


def _open(asking: HTTPConnection, box_id: str) -> bytes:
    asking.request("GET", f"/inspect/{PROJECT}/boxes/{box_id}")
    return _answer(asking)


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
    Row(
        name="inspect-long-box",
        what=f"the page of a box of {_CARDS:,} cards",
        against=f"that of a box of {_SHORT}",
        target=at_most(2),
        rounds=40,
        prepare=_pages,
    ),
]
