"""Appending one id to a long box, committed, against a short box."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

from benchmarks.material import card_ids, drafts
from benchmarks.measure import Row, Side, at_most
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database

_LONG, _SHORT = 10_000, 10
# As many boxes as there are rounds, so that no box grows by more than an id or two.
_ROUNDS = 40


@contextmanager
def _prepare(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database:
        database.enable_prepared_statements()
        sides = _appending(database, _LONG), _appending(database, _SHORT)
        settle(database)
        yield sides


def _appending(database: Database, size: int) -> Side:
    (card,) = drafts(1)
    CardStore(database, PROJECT).add(card)
    boxes = BoxStore(database, PROJECT)
    ids = card_ids(size)
    made = [boxes.create(ids, allow_dangling=True).box_id for _ in range(_ROUNDS)]
    next_box = cycle(made).__next__
    return Side(run=lambda: boxes.append(next_box(), [card.card_id]))


ROWS = [
    Row(
        name="append-10000",
        what=f"BoxStore.append of one id to a box of {_LONG:,}",
        against=f"the same to a box of {_SHORT}",
        felt_by="an agent with a long output box, at each of its steps",
        target=at_most(5),
        rounds=_ROUNDS,
        prepare=_prepare,
    )
]
