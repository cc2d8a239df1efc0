"""Measuring two things side by side: interleaved runs, their medians, and a ratio with its target.

Owns the order of the runs; the clock is `side.py`'s, and what is run is the rows' business. From one minute
to the next times differ by more than most targets allow; ratios of runs that stand side by side hold.
"""

import gc
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from benchmarks.side import seconds
from benchmarks.workbench import Workbench

ROOT = Path(__file__).parents[1]

# The exit codes of commands that have answered, be it that something is amiss.
ANSWERED = (0, 8)


class Missing(Exception):
    """A row cannot be measured here: what it needs, and where that is had."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two that are compared. Only `run` is timed; it does so many `units`, `before` does none.

    Where `run` measures by itself, it `tells` the seconds per unit, or whatever its row compares.
    """

    run: Callable[[], object]
    before: Callable[[], object] = lambda: None
    units: int = 1
    tells: bool = False


class Target(msgspec.Struct, frozen=True):
    """What the ratio should be: of the times, `at most` the limit; of the speeds, `at least` the limit."""

    kind: Literal["at most", "at least"]
    limit: float

    def ratio(self, ours: float, peer: float) -> float:
        """How these times compare, in the direction of the target."""
        return ours / peer if self.kind == "at most" else peer / ours

    def met(self, ratio: float) -> bool:
        """Whether `ratio` is on the right side of the limit."""
        return ratio <= self.limit if self.kind == "at most" else ratio >= self.limit


at_most = partial(Target, "at most")
at_least = partial(Target, "at least")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison: what is measured, against what, who feels it, in how many rounds, and the target.

    `felt_by` names in one line the person or program that a missed target makes wait. `prepare` makes both
    sides, ours first, and removes afterwards what they needed. Sides that tell another `unit` than seconds
    compare that.
    """

    name: str
    what: str
    against: str
    felt_by: str
    target: Target
    rounds: int
    unit: Literal["s", "MB"] = "s"
    prepare: Callable[[Workbench], AbstractContextManager[tuple[Side, Side]]]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds per unit of every run of a row, or what else its unit is."""

    row: Row
    ours: list[float]
    peer: list[float]

    @property
    def ratio(self) -> float:
        """How the two compare in the median round: a machine that changes its pace in between changes few."""
        return median(map(self.row.target.ratio, self.ours, self.peer))

    @property
    def met(self) -> bool:
        """Whether the row met its target."""
        return self.row.target.met(self.ratio)


def measure(row: Row, bench: Workbench, *, rounds: int | None = None) -> Measured:
    """Run both sides of `row`, in so many rounds instead of its own. Raises Missing."""
    with row.prepare(bench) as (ours, peer):
        times = interleaved(ours, peer, rounds=rounds or row.rounds)
    return Measured(row=row, ours=times[0], peer=times[1])


def interleaved(ours: Side, peer: Side, *, rounds: int) -> tuple[list[float], list[float]]:
    """The seconds per unit of each run, after a round that does not count. Each begins every other round."""
    times: tuple[list[float], list[float]] = ([], [])
    _run_both(ours, peer, ([], []))
    for number in range(rounds):
        if number % 2:
            _run_both(peer, ours, times[::-1])
        else:
            _run_both(ours, peer, times)
    return times


def _run_both(first: Side, second: Side, times: tuple[list[float], list[float]]) -> None:
    gc.collect()
    for side, taken in zip((first, second), times, strict=True):
        taken.append(seconds(side))


def process(words: Sequence[str], environment: Mapping[str, str]) -> Side:
    """A whole process, from its start to its end.

    Running it raises CalledProcessError when it fails, and shows what it said then.
    """

    def run() -> None:
        done = subprocess.run(
            words,
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if done.returncode not in ANSWERED:
            sys.stderr.buffer.write(done.stderr)
            done.check_returncode()

    return Side(run=run)
