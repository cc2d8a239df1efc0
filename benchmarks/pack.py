"""Packing long boxes in process, against reading their id lists, and against packing shorter ones."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from benchmarks.material import card_ids, drafts, half_overlapping
from benchmarks.measure import Row, Side, at_most
from benchmarks.workbench import PROJECT, Workbench, settle
from cardbox_cli.packing.pack import pack
from cardbox_cli.packing.recipe_files import recipe_from_mapping
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.profiles import ProfileStore

_BOXES = 5

_ID_LISTS = "SELECT card_ids::text FROM public.card_boxes WHERE box_id = ANY(%s::uuid[])"

_RECIPE = {
    "target_profile_config": {"profile_name": "writer"},
    "context_packing_config": {
        "pack_arguments": [{"arg_key": "instruction"}],
        "inherit_context": {"include_boxes_from_args": ["boxes"]},
    },
}


@contextmanager
def _database(bench: Workbench, cards: int) -> Iterator[Database]:
    """A database with so many cards and a profile."""
    with bench.database() as database:
        database.keep_plans()
        CardStore(database, PROJECT).add_many(drafts(cards))
        profile = {"name": "writer", "worker_target": "any", "tags": []}
        ProfileStore(database, PROJECT).save(profile, author_id="bench")
        yield database


def _boxes(database: Database, size: int) -> list[str]:
    """The ids of boxes of so many cards each, half overlapping."""
    store = BoxStore(database, PROJECT)
    lists = half_overlapping(card_ids((_BOXES + 1) * size // 2), boxes=_BOXES, size=size)
    return [store.create(ids, allow_dangling=True).box_id for ids in lists]


def _packing(database: Database, box_ids: list[str], *, units: int) -> Side:
    recipe = recipe_from_mapping(_RECIPE)
    arguments = {"instruction": "Write the report", "boxes": box_ids}
    return Side(
        run=lambda: pack(
            database, PROJECT, recipe=recipe, recipe_name="report", arguments=arguments, with_digest=False
        ),
        units=units,
    )


@contextmanager
def _against_reading(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    with _database(bench, 6_000) as database, bench.connect(database) as other:
        box_ids = _boxes(database, 2_000)
        settle(database)

        def id_lists() -> list[list[str]]:
            rows = other.execute(_ID_LISTS, [box_ids])
            return [msgspec.json.decode(ids) for (ids,) in rows]

        yield _packing(database, box_ids, units=1), Side(run=id_lists)


@contextmanager
def _against_fewer(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    with _database(bench, 60_000) as database:
        many, few = _boxes(database, 20_000), _boxes(database, 2_000)
        settle(database)
        yield _packing(database, many, units=100_000), _packing(database, few, units=10_000)


ROWS = [
    Row(
        name="pack-ids",
        what="pack 5 boxes of 2,000 cards, half overlapping, without the digest",
        against="reading the five id lists",
        target=at_most(4.8),
        rounds=20,
        prepare=_against_reading,
    ),
    Row(
        name="pack-linear",
        what="the same with 5 boxes of 20,000 cards, per card",
        against="with 5 boxes of 2,000, per card",
        target=at_most(1.3),
        rounds=5,
        prepare=_against_fewer,
    ),
]
