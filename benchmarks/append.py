"""Appending one id to a long box, committed, against a short box, and against JSONB stored by default."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle

from benchmarks.material import card_ids, drafts
from benchmarks.measure import Row, Side, Target, at_least, at_most
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database

# As many boxes as there are rounds, so that no box grows by more than an id or two.
_ROUNDS = 100


@contextmanager
def _against_short_box(bench: Workbench, size: int) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database:
        database.keep_plans()
        sides = _appending(database, size), _appending(database, 10)
        settle(database)
        yield sides


@contextmanager
def _against_default_storage(bench: Workbench, size: int) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database, bench.database() as other:
        for each in (database, other):
            each.keep_plans()
            # How long a disk takes says nothing of storage.
            each.connection.execute("SET synchronous_commit = off")
        other.connection.execute("ALTER TABLE public.card_boxes ALTER COLUMN card_ids SET STORAGE EXTENDED")
        sides = _appending(database, size), _appending(other, size)
        settle(database)
        settle(other)
        yield sides


def _appending(database: Database, size: int) -> Side:
    (card,) = drafts(1)
    CardStore(database, PROJECT).add(card)
    boxes = BoxStore(database, PROJECT)
    ids = card_ids(size)
    made = [boxes.create(ids, allow_dangling=True).box_id for _ in range(_ROUNDS)]
    next_box = cycle(made).__next__
    return Side(run=lambda: boxes.append(next_box(), [card.card_id]))


def _short_row(size: int, target: Target) -> Row:
    return Row(
        name=f"append-{size}",
        what=f"BoxStore.append of one id to a box of {size:,}",
        against="the same to a box of 10",
        target=target,
        rounds=_ROUNDS,
        prepare=partial(_against_short_box, size=size),
    )


def _storage_row(size: int) -> Row:
    return Row(
        name=f"append-{size}-storage",
        what=f"BoxStore.append of one id to a box of {size:,}, without waiting for the disk",
        against="the same where card_ids has the default storage of JSONB",
        target=at_least(4),
        rounds=_ROUNDS,
        prepare=partial(_against_default_storage, size=size),
    )


ROWS = [
    _short_row(1_000, at_most(2)),
    _short_row(10_000, at_most(15)),
    _storage_row(1_000),
    _storage_row(10_000),
]
