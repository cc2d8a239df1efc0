"""Reading a box of 10,000 cards in order, as JSON text and as values, against the least that this takes."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, LiteralString, TextIO

import msgspec
import psycopg
from psycopg.types.json import set_json_loads

from benchmarks.material import drafts
from benchmarks.measure import Row, Side, at_most
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.queries import query

_CARDS = 10_000
_ROUNDS = 20

_IN_ORDER = """
SELECT c.*
FROM public.card_boxes AS b
CROSS JOIN LATERAL jsonb_array_elements_text(b.card_ids) WITH ORDINALITY AS slot (card_id, place)
JOIN public.cards AS c ON c.tenant_id = b.tenant_id AND c.card_id = slot.card_id
WHERE b.tenant_id = %s AND b.box_id = %s
ORDER BY slot.place
"""


def _all_cards() -> LiteralString:
    """A query for every card of a project as cbx projects it, in any order."""
    projection, table, _ = query("cards_by_ids").partition("FROM public.cards AS c")
    return projection + table + " WHERE c.tenant_id = %s"


@contextmanager
def _loaded(bench: Workbench) -> Iterator[tuple[Database, psycopg.Connection[Any], str]]:
    """A database with a box of all its cards, another connection to it, and the id of the box."""
    with bench.database() as database, bench.connect(database) as other:
        cards = drafts(_CARDS)
        CardStore(database, PROJECT).add_many(cards)
        box = BoxStore(database, PROJECT).create([card.card_id for card in cards])
        settle(database)
        yield database, other, box.box_id


@contextmanager
def _as_json(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    database, other, box_id = bench.shared(_loaded)
    with open(os.devnull, "w", encoding="utf-8") as out:
        store, select = BoxStore(database, PROJECT), _all_cards()

        def in_order() -> None:
            with database.snapshot():
                _write(out, (text for _, text in store.json_lines(box_id) if text is not None))

        def in_any_order() -> None:
            _write(out, (text for (text,) in other.execute(select, [PROJECT])))

        yield Side(run=in_order), Side(run=in_any_order)


def _write(out: TextIO, lines: Iterable[str]) -> None:
    for line in lines:
        out.write(line + "\n")


@contextmanager
def _as_values(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    database, other, box_id = bench.shared(_loaded)
    store = BoxStore(database, PROJECT)
    set_json_loads(msgspec.json.decode, other)

    def plain_objects() -> list[tuple[Any, ...]]:
        return other.cursor(binary=True).execute(_IN_ORDER, [PROJECT, box_id]).fetchall()

    yield Side(run=lambda: store.slots(box_id)), Side(run=plain_objects)


ROWS = [
    Row(
        name="load-json",
        what="BoxStore.json_lines of 10,000 cards in order, written out",
        against="the same projection of the same cards in any order, written out",
        felt_by="a person who exports or renders a long box",
        target=at_most(1.35),
        rounds=_ROUNDS,
        prepare=_as_json,
    ),
    Row(
        name="load-values",
        what="BoxStore.slots of 10,000 cards",
        against="one query in the same order, a binary cursor, JSON decoded by msgspec into plain objects",
        felt_by="a person who sends a message to a chat with a long context",
        target=at_most(1.3),
        rounds=_ROUNDS,
        prepare=_as_values,
    ),
]
