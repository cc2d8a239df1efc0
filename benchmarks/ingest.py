"""Writing 10,000 cards with all checks, against a COPY without any check."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from benchmarks.material import drafts
from benchmarks.measure import Row, Side, at_least
from benchmarks.workbench import PROJECT, Workbench
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.store.cards import CardStore

_CARDS = 10_000

_COPY = """
COPY public.cards (tenant_id, card_id, content, tool_calls, tool_call_id, ttl_seconds, metadata) FROM STDIN
"""


def _copy(connection: psycopg.Connection[Any], cards: Sequence[CardDraft]) -> None:
    with connection.cursor().copy(_COPY) as copy:
        for card in cards:
            copy.write_row(_values(card))


def _values(card: CardDraft) -> tuple[Any, ...]:
    return (
        PROJECT,
        card.card_id,
        _encode(card.content),
        None if card.tool_calls is None else _encode(card.tool_calls),
        card.tool_call_id,
        card.ttl_seconds,
        _encode({**card.metadata, "project_id": PROJECT, "created_at": "2026-01-01T00:00:00.000000Z"}),
    )


def _encode(value: Any) -> str:
    return exact_json.encode(value).decode()


@contextmanager
def _prepare(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    cards = drafts(_CARDS)
    with bench.database() as database, bench.connect(database) as other:
        store = CardStore(database, PROJECT)

        def empty() -> None:
            other.execute("TRUNCATE public.cards")

        yield (
            Side(before=empty, run=lambda: store.add_many(cards)),
            Side(before=empty, run=lambda: _copy(other, cards)),
        )


ROWS = [
    Row(
        name="ingest-copy",
        what="CardStore.add_many of 10,000 cards",
        against="COPY of the same rows into the same table, with the same encoder",
        felt_by="a person who imports many conversations",
        target=at_least(0.5),
        rounds=10,
        prepare=_prepare,
    ),
]
