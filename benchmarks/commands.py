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


# What a script does, and the file of the one that does it plainly, or as soon as it can.
_DOES = f"import psycopg, connect, select {_CARDS} cards, print"
_BARE = ("show_cards", f"a bare script, not tuned: {_DOES}")
_TUNED = ("show_cards_tuned", f"the same script, tuned to begin and end as cbx does: {_DOES}")


def _row(
    name: str, what: str, command: Command, *, target: Target | None, script: tuple[str, str] = _BARE
) -> Row:
    file, against = script
    return Row(
        name=name,
        what=what,
        against=against,
        target=target,
        rounds=20,
        prepare=partial(_prepare, command=command, script=file),
    )


@contextmanager
def _prepare(bench: Workbench, command: Command, script: str) -> Iterator[tuple[Side, Side]]:
    with bench.database() as database:
        cards = drafts(_CARDS)
        CardStore(database, PROJECT).add_many(cards)
        box_id = BoxStore(database, PROJECT).create([card.card_id for card in cards]).box_id
        profile = {"name": "writer", "worker_target": "any", "tags": []}
        ProfileStore(database, PROJECT).save(profile, author_id="bench")
        settle(database)
        environment = bench.environment(database)
        bare = peer(script, environment["CBX_DATABASE_URL"], box_id)
        yield process(cbx(*command(box_id)), environment), process(bare, environment)


def _show_json(box_id: str) -> list[str]:
    return ["box", "show", box_id, "-o", "json"]


def _pack(box_id: str) -> list[str]:
    arguments = ["profile_name=writer", "instruction=Write the report", f"input_box_ids={box_id}"]
    return ["pack", "--handover", "delegate", *(word for each in arguments for word in ("--arg", each))]


ROWS = [
    _row(
        "show-json",
        f"cbx box show BOX -o json, {_CARDS} cards",
        _show_json,
        target=at_most(1.1),
    ),
    _row(
        "show-json-tuned",
        f"cbx box show BOX -o json, {_CARDS} cards",
        _show_json,
        target=None,
        script=_TUNED,
    ),
    _row(
        "show-table",
        f"cbx box show BOX, {_CARDS} cards, as a table",
        lambda box_id: ["box", "show", box_id, "-o", "table"],
        target=at_most(1.25),
    ),
    _row(
        "pack-command",
        f"cbx pack --handover delegate, inheriting a box of {_CARDS} cards",
        _pack,
        target=at_most(1.7),
    ),
]
