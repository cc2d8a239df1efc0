"""Commands on boxes of 1,000, 10,000 and 100,000 cards: what they take for a card, and how much memory.

Whole processes. Time is compared from 10,000 to 100,000, memory from 1,000, where it is that of the program.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec

from benchmarks.material import card_ids, drafts
from benchmarks.measure import ANSWERED, ROOT, Row, Side, at_most, process
from benchmarks.workbench import PROJECT, Workbench, cbx, peer, settle
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.profiles import ProfileStore

_FEW, _MORE, _MOST = _SIZES = 1_000, 10_000, 100_000
# So many times the memory of a command on few cards, some 45 MB, are less than 150 MB.
_MEMORY = 3.3


class Filled(msgspec.Struct, frozen=True):
    """Boxes of each size, a turn that each is the context of, and the environment in which both are found."""

    boxes: dict[int, str]
    turns: dict[int, str]
    environment: dict[str, str]


class Grown(msgspec.Struct, frozen=True, kw_only=True):
    """A command on boxes: its name in a row, its words for a box of a size, and who feels its time.

    `by_card`: it reads every card; the others should hardly take longer on a long box. `streams`: it holds
    few cards at once, and its memory is measured too.
    """

    name: str
    says: str
    words: Callable[[Filled, int], list[str]]
    felt_by: str
    by_card: bool = True
    streams: bool = False


@contextmanager
def _filled(bench: Workbench) -> Iterator[Filled]:
    with bench.database() as database:
        CardStore(database, PROJECT).add_many(drafts(_MOST))
        ids, store = card_ids(_MOST), BoxStore(database, PROJECT)
        boxes = {size: store.create(ids[:size]).box_id for size in _SIZES}
        profile = {"name": "writer", "worker_target": "any", "tags": []}
        ProfileStore(database, PROJECT).save(profile, author_id="bench")
        settle(database)
        environment = bench.environment(database)
        turns = {size: _asked(environment, f"agent-{size}", box_id) for size, box_id in boxes.items()}
        yield Filled(boxes, turns, environment)


def _asked(environment: dict[str, str], agent: str, box_id: str) -> str:
    """A turn of a new agent with a box as its context."""

    _output(cbx("agent", "provision", agent, "--profile", "writer"), environment)
    return _output(cbx("dispatch", "--agent", agent, "--context-box", box_id, "-o", "id"), environment)


@contextmanager
def _time(bench: Workbench, grown: Grown) -> Iterator[tuple[Side, Side]]:
    filled = bench.shared(_filled)

    def side(size: int) -> Side:
        whole = process(cbx(*grown.words(filled, size)), filled.environment)
        return msgspec.structs.replace(whole, units=size if grown.by_card else 1)

    yield side(_MOST), side(_MORE)


@contextmanager
def _memory(bench: Workbench, grown: Grown) -> Iterator[tuple[Side, Side]]:
    filled = bench.shared(_filled)

    def side(size: int) -> Side:
        measured = peer("peak_memory", *cbx(*grown.words(filled, size)))
        return Side(run=lambda: float(_output(measured, filled.environment)), tells=True)

    yield side(_MOST), side(_FEW)


def _output(words: Sequence[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in ANSWERED:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    return done.stdout.strip()


def _pack(filled: Filled, size: int) -> list[str]:
    arguments = ("profile_name=writer", "instruction=Go on", f"input_box_ids={filled.boxes[size]}")
    return ["pack", "--handover", "delegate", *(word for each in arguments for word in ("--arg", each))]


def _on_box(*words: str) -> Callable[[Filled, int], list[str]]:
    """Words in which BOX stands for the box of a size."""
    return lambda filled, size: [filled.boxes[size] if word == "BOX" else word for word in words]


_COMMANDS = (
    Grown(
        name="show",
        says="box show -o json",
        words=_on_box("box", "show", "BOX", "-o", "json"),
        felt_by="a person who exports a box of 100,000 cards",
        streams=True,
    ),
    Grown(
        name="tail",
        says="box show --tail 5",
        words=_on_box("box", "show", "BOX", "--tail", "5"),
        felt_by="a person who looks at what an agent did last",
        by_card=False,
    ),
    Grown(
        name="render",
        says="render",
        words=_on_box("render", "--box", "BOX"),
        felt_by="a person who renders a box of 100,000 cards",
        streams=True,
    ),
    Grown(
        name="check",
        says="render --check",
        words=_on_box("render", "--box", "BOX", "--check"),
        felt_by="a person who checks a box of 100,000 cards",
    ),
    Grown(
        name="pack",
        says="pack, inheriting a box",
        words=_pack,
        felt_by="a person who hands a box of 100,000 cards on",
    ),
    Grown(
        name="why",
        says="why, of a turn whose context is a box",
        words=lambda filled, size: ["why", filled.turns[size]],
        felt_by="a person who asks why a turn with a context of 100,000 cards waits",
    ),
)


def _rows(grown: Grown) -> Iterator[Row]:
    what, per_card = f"cbx {grown.says}, {_MOST:,} cards", ", per card" if grown.by_card else ""
    yield Row(
        name=f"{grown.name}-growth",
        what=f"{what}{per_card}",
        against=f"{_MORE:,} cards{per_card}",
        felt_by=grown.felt_by,
        target=at_most(1.3 if grown.by_card else 2),
        rounds=2,
        prepare=partial(_time, grown=grown),
    )
    if grown.streams:
        yield Row(
            name=f"{grown.name}-memory",
            what=f"{what}, the most memory that it had",
            against=f"{_FEW:,} cards",
            felt_by=f"{grown.felt_by} on a small machine",
            target=at_most(_MEMORY),
            rounds=1,
            unit="MB",
            prepare=partial(_memory, grown=grown),
        )


ROWS = [row for grown in _COMMANDS for row in _rows(grown)]
