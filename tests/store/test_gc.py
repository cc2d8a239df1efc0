"""Purging: which cards go, in batches that wait for nobody, and what their boxes then lack."""

import threading
from collections.abc import Callable

import psycopg
import pytest

from cardbox_cli.model.cards import draft_card
from cardbox_cli.store import gc
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.gc import DanglingBox, GarbageCollector, PurgeCounts
from tests.conftest import PROJECT

Write = Callable[..., None]


@pytest.fixture
def collector(database: Database) -> GarbageCollector:
    return GarbageCollector(database, PROJECT)


@pytest.fixture
def write(cards: CardStore) -> Write:
    """Write cards of these ids, in the project unless another store is given."""

    def add(*card_ids: str, ttl: int | None = None, into: CardStore = cards) -> None:
        into.add_many(draft_card("x", "x", card_id=card_id, ttl_seconds=ttl) for card_id in card_ids)

    return add


def left(cards: CardStore) -> list[str]:
    """The ids of all rows of the project, hidden ones too."""
    rows = cards.database.connection.execute(
        "SELECT card_id FROM public.cards WHERE tenant_id = %s ORDER BY 1", [cards.project_id]
    )
    return [card_id for (card_id,) in rows]


def test_only_expired_cards_are_purged_by_default(
    cards: CardStore, collector: GarbageCollector, write: Write
) -> None:
    write("e1", "e2", ttl=0)
    write("later", ttl=3600)
    write("ever", "deleted")
    write("both", ttl=0)
    cards.delete(["deleted", "both"])
    assert collector.find(deleted=False) == collector.purge(deleted=False) == PurgeCounts(expired=2)
    assert left(cards) == ["both", "deleted", "ever", "later"]
    assert collector.purge(deleted=False) == PurgeCounts()


def test_a_purge_uses_the_clock_of_the_database(
    cards: CardStore, collector: GarbageCollector, write: Write
) -> None:
    write("later", ttl=3600)
    assert collector.purge(deleted=False) == PurgeCounts()
    cards.database.connection.execute("SELECT set_config('cbx.clock_offset', '2 hours', false)")
    assert collector.purge(deleted=False) == PurgeCounts(expired=1)


def test_deleted_cards_are_purged_on_request(
    cards: CardStore, collector: GarbageCollector, write: Write
) -> None:
    write("a", "b", "c")
    write("both", ttl=0)
    write("e", ttl=0)
    cards.delete(["a", "c", "both"])
    assert collector.find(deleted=True) == collector.purge(deleted=True) == PurgeCounts(expired=1, deleted=3)
    assert left(cards) == ["b"]


def test_cards_of_another_project_are_not_purged(
    cards: CardStore, collector: GarbageCollector, database: Database, write: Write
) -> None:
    other = CardStore(database, "q")
    write("mine", ttl=0)
    write("theirs", "deleted", ttl=0, into=other)
    other.delete(["deleted"])
    assert collector.purge(deleted=True) == PurgeCounts(expired=1)
    assert left(other) == ["deleted", "theirs"]
    assert gc.projects_with_rows(database) == ["q"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_batches_of_any_size_purge_all_cards(
    size: int, cards: CardStore, collector: GarbageCollector, write: Write
) -> None:
    write(*(f"e{number}" for number in range(7)), ttl=0)
    write(*(f"d{number}" for number in range(7)))
    cards.delete([f"d{number}" for number in range(7)])
    batches: list[int] = []
    assert collector.purge(deleted=True, batch_size=size, advance=batches.append) == PurgeCounts(7, 7)
    assert left(cards) == []
    of_one_kind = [size] * (7 // size) + ([7 % size] if 7 % size else [])
    assert batches == of_one_kind * 2


class Stopped(Exception):
    pass


@pytest.mark.parametrize("deleted", [False, True])
def test_an_interrupted_purge_commits_whole_batches(
    deleted: bool, cards: CardStore, collector: GarbageCollector, write: Write, target: Target
) -> None:
    write(*(f"{number}" for number in range(10)), ttl=None if deleted else 0)
    if deleted:
        cards.delete([f"{number}" for number in range(10)])
    told: list[int] = []

    def stop_at_the_second(rows: int) -> None:
        told.append(rows)
        if len(told) == 2:
            raise Stopped

    with pytest.raises(Stopped):
        collector.purge(deleted=deleted, batch_size=3, advance=stop_at_the_second)
    with Database.open_target(target) as another:
        assert len(left(CardStore(another, PROJECT))) == 4
    assert collector.purge(deleted=deleted, batch_size=3).total == 4
    assert left(cards) == []


@pytest.mark.parametrize("deleted", [False, True])
def test_a_purge_skips_locked_cards(
    deleted: bool, cards: CardStore, collector: GarbageCollector, write: Write, target: Target
) -> None:
    write("a", "held", "z", ttl=None if deleted else 0)
    if deleted:
        cards.delete(["a", "held", "z"])
    with psycopg.connect(target.conninfo or "") as writer:
        writer.execute("SELECT FROM cards WHERE card_id = 'held' FOR UPDATE")
        assert collector.purge(deleted=deleted, batch_size=1).total == 2
        assert left(cards) == ["held"]
        writer.rollback()
    assert collector.purge(deleted=deleted).total == 1


def test_a_card_that_is_restored_during_a_purge_is_not_removed(
    cards: CardStore, collector: GarbageCollector, write: Write, target: Target
) -> None:
    write("a", "back")
    cards.delete(["a", "back"])
    with Database.open_target(target) as writer, writer.transaction():
        CardStore(writer, PROJECT).add(draft_card("x", "x", card_id="back"), repair=True)
        assert collector.purge(deleted=True) == PurgeCounts(deleted=1)
    assert collector.purge(deleted=True) == PurgeCounts()
    assert left(cards) == ["back"]


def test_concurrent_purges_remove_each_card_once(cards: CardStore, target: Target, write: Write) -> None:
    write(*(f"{number}" for number in range(500)), ttl=0)
    purged: list[int] = []

    def purge() -> None:
        with Database.open_target(target) as database:
            purged.append(GarbageCollector(database, PROJECT).purge(deleted=True, batch_size=10).expired)

    workers = [threading.Thread(target=purge) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (sum(purged), left(cards)) == (500, [])


class TestDanglingReferences:
    def test_dangling_references_are_counted_per_box(
        self, cards: CardStore, boxes: BoxStore, collector: GarbageCollector, write: Write
    ) -> None:
        write("e", ttl=0)
        write("kept", "deleted")
        few = boxes.create(["kept", "e", "deleted"]).box_id
        many = boxes.create(["e", "e", "lost", "kept"], allow_dangling=True).box_id
        boxes.create(["kept"])
        cards.delete(["deleted"])

        def counts(**without: bool) -> list[tuple[str, int]]:
            return [(box.box_id, box.count) for box in collector.dangling(**without)]

        assert counts() == [(many, 1)]
        assert counts(without_expired=True) == [(many, 3), (few, 1)]
        assert counts(without_expired=True, without_deleted=True) == [(many, 3), (few, 2)]
        collector.purge(deleted=False)
        assert counts() == [(many, 3), (few, 1)]
        collector.purge(deleted=True)
        assert collector.dangling() == [DanglingBox(PROJECT, many, 3), DanglingBox(PROJECT, few, 2)]
        assert boxes.get(few).card_ids == ["kept", "e", "deleted"]

    def test_only_the_latest_boxes_are_searched(self, boxes: BoxStore, collector: GarbageCollector) -> None:
        old, new = (boxes.create(["lost"], allow_dangling=True).box_id for _ in range(2))
        assert [box.box_id for box in collector.dangling(latest=1)] == [new]
        assert {box.box_id for box in collector.dangling(latest=None)} == {old, new}

    def test_values_that_are_not_lists_have_no_references(
        self, boxes: BoxStore, collector: GarbageCollector, database: Database
    ) -> None:
        box_id = boxes.create([]).box_id
        for odd in (None, '{"a": 1}', '"a"'):
            database.connection.execute("UPDATE card_boxes SET card_ids = %s", [odd])
            assert collector.dangling() == []
        database.connection.execute("UPDATE card_boxes SET card_ids = '[1, null]'")
        assert collector.dangling() == [DanglingBox(PROJECT, box_id, 2)]


class TestBoxInfo:
    def test_the_info_of_a_deleted_box_is_purged(
        self, boxes: BoxStore, collector: GarbageCollector, database: Database
    ) -> None:
        kept = boxes.create([], title="kept").box_id
        for _ in range(3):
            boxes.create([], title="gone")
        BoxStore(database, "q").create([], title="theirs")
        # As another program does, which knows nothing of box_info.
        database.connection.execute("DELETE FROM card_boxes WHERE box_id <> %s", [kept])
        assert gc.projects_with_rows(database) == [PROJECT, "q"]
        batches: list[int] = []
        found = collector.find(deleted=False)
        assert found == collector.purge(deleted=False, batch_size=2, advance=batches.append)
        assert (found, batches) == (PurgeCounts(box_info=3), [2, 1])
        assert boxes.get(kept).title == "kept"
        assert gc.projects_with_rows(database) == [PROJECT, "q"]

    def test_a_box_that_is_created_again_during_a_purge_keeps_its_title(
        self, boxes: BoxStore, collector: GarbageCollector, database: Database, target: Target
    ) -> None:
        box_id = boxes.create([], title="old").box_id
        database.connection.execute("DELETE FROM card_boxes")
        with Database.open_target(target) as writer, writer.transaction():
            BoxStore(writer, PROJECT).create([], box_id=box_id, title="new")
            assert collector.purge(deleted=False) == PurgeCounts()
        assert boxes.get(box_id).title == "new"
