"""Commands with a query or a few, on a server that runs: whole processes against a bare script with one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.material import drafts
from benchmarks.measure import Row, Side, Target, at_most, process
from benchmarks.workbench import PROJECT, Workbench, cbx, peer, settle
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.profiles import ProfileStore

_CARDS = 20

# The words of a command on a box.
Command = Callable[[str], list[str]]


def _row(name: str, what: str, felt_by: str, command: Command, target: Target) -> Row:
    return Row(
        name=name,
        what=what,
        against=f"a bare script, not tuned: import psycopg, connect, select {_CARDS} cards, print",
        felt_by=felt_by,
        target=target,
        rounds=20,
        prepare=partial(_prepare, command=command),
    )


@contextmanager
def _filled(bench: Workbench) -> Iterator[tuple[str, dict[str, str]]]:
    """The id of a box, and the environment in which commands find it."""
    with bench.database() as database:
        cards = drafts(_CARDS)
        CardStore(database, PROJECT).add_many(cards)
        box_id = BoxStore(database, PROJECT).create([card.card_id for card in cards]).box_id
        profile = {"name": "writer", "worker_target": "any", "tags": []}
        ProfileStore(database, PROJECT).save(profile, author_id="bench")
        settle(database)
        yield box_id, bench.environment(database)


@contextmanager
def _prepare(bench: Workbench, command: Command) -> Iterator[tuple[Side, Side]]:
    box_id, environment = bench.shared(_filled)
    bare = peer("show_cards", environment["CBX_DATABASE_URL"], box_id)
    yield process(cbx(*command(box_id)), environment), process(bare, environment)


def _pack(box_id: str) -> list[str]:
    arguments = ["profile_name=writer", "instruction=Write the report", f"input_box_ids={box_id}"]
    return ["pack", "--handover", "delegate", *(word for each in arguments for word in ("--arg", each))]


ROWS = [
    _row(
        "show-json",
        f"cbx box show BOX -o json, {_CARDS} cards",
        "scripts that read one box after another, with a process for each",
        lambda box_id: ["box", "show", box_id, "-o", "json"],
        at_most(1.25),
    ),
    _row(
        "show-table",
        f"cbx box show BOX, {_CARDS} cards, as a table",
        "a person who reads one box after another",
        lambda box_id: ["box", "show", box_id, "-o", "table"],
        at_most(1.25),
    ),
    _row(
        "pack-command",
        f"cbx pack --handover delegate, inheriting a box of {_CARDS} cards",
        "scripts that pack a context for each of many tasks",
        _pack,
        at_most(2),
    ),
]
