"""Writing 10,000 cards with all checks, against one by one, and against a COPY without any check."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from benchmarks.material import drafts
from benchmarks.measure import Row, Side, at_least
from benchmarks.workbench import PROJECT, Workbench
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.store.cards import CardStore

_CARDS = 10_000

# Writes cards through a connection in autocommit.
Write = Callable[[psycopg.Connection[Any], Sequence[CardDraft]], None]

_UPSERT = """
INSERT INTO public.cards (tenant_id, card_id, content, tool_calls, tool_call_id, ttl_seconds, metadata)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (card_id) DO UPDATE SET content = EXCLUDED.content, tool_calls = EXCLUDED.tool_calls,
    tool_call_id = EXCLUDED.tool_call_id, ttl_seconds = EXCLUDED.ttl_seconds, metadata = EXCLUDED.metadata
"""
_COPY = """
COPY public.cards (tenant_id, card_id, content, tool_calls, tool_call_id, ttl_seconds, metadata) FROM STDIN
"""


def _upsert_each(connection: psycopg.Connection[Any], cards: Sequence[CardDraft]) -> None:
    for card in cards:
        connection.execute(_UPSERT, _values(card, partial(Jsonb, dumps=exact_json.encode)))


def _copy(connection: psycopg.Connection[Any], cards: Sequence[CardDraft]) -> None:
    with connection.cursor().copy(_COPY) as copy:
        for card in cards:
            copy.write_row(_values(card, lambda value: exact_json.encode(value).decode()))


def _values(card: CardDraft, as_json: Callable[[Any], Any]) -> tuple[Any, ...]:
    return (
        PROJECT,
        card.card_id,
        as_json(card.content),
        None if card.tool_calls is None else as_json(card.tool_calls),
        card.tool_call_id,
        card.ttl_seconds,
        as_json({**card.metadata, "project_id": PROJECT, "created_at": "2026-01-01T00:00:00.000000Z"}),
    )


@contextmanager
def _prepare(bench: Workbench, write: Write) -> Iterator[tuple[Side, Side]]:
    cards = drafts(_CARDS)
    with bench.database() as database, bench.connect(database) as other:
        store = CardStore(database, PROJECT)

        def empty() -> None:
            other.execute("TRUNCATE public.cards")

        yield (
            Side(before=empty, run=lambda: store.add_many(cards)),
            Side(before=empty, run=lambda: write(other, cards)),
        )


ROWS = [
    Row(
        name="ingest-upserts",
        what="CardStore.add_many of 10,000 cards",
        against="an upsert with a commit of its own for each card",
        target=at_least(5),
        rounds=3,
        prepare=partial(_prepare, write=_upsert_each),
    ),
    Row(
        name="ingest-copy",
        what="CardStore.add_many of 10,000 cards",
        against="COPY of the same rows into the same table, with the same encoder",
        target=at_least(0.5),
        rounds=20,
        prepare=partial(_prepare, write=_copy),
    ),
]
