"""How long a command takes on both sides, in turn."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.scale.cards import MarkedBox
from benchmarks.scale.sides import Sides

TARGET = 1.5
"""What a ratio may be, where nothing else is said."""
ROUNDS = 15
# A command that takes seconds is not asked as often.
SECONDS_PER_COMMAND = 10

Line = Callable[[MarkedBox], str]


@dataclass(frozen=True)
class Command:
    """A command to measure. With `target`, the ratio that it may have."""

    name: str
    line: Line
    target: float | None = None


@dataclass(frozen=True)
class Measured:
    """The medians of a command in milliseconds, and how many rounds they are of."""

    name: str
    small_ms: float
    large_ms: float
    rounds: int
    target: float | None

    @property
    def ratio(self) -> float:
        """How many times as long the large database takes."""
        return self.large_ms / self.small_ms

    @property
    def missed(self) -> bool:
        """Whether there is a target, and it is not reached."""
        return self.target is not None and self.ratio > self.target

    def per(self, times: int, target: float = TARGET) -> "Measured":
        """The same of a share, where the large side had so many times as much to do."""
        return replace(self, large_ms=self.large_ms / times, target=target)

    def as_json(self) -> dict[str, Any]:
        """With times in milliseconds."""
        return {
            "command": self.name,
            "small_ms": round(self.small_ms, 2),
            "large_ms": round(self.large_ms, 2),
            "ratio": round(self.ratio, 2),
            "target": self.target,
            "missed": self.missed,
            "rounds": self.rounds,
        }


def measure(
    name: str, small: Callable[[int], None], large: Callable[[int], None], target: float | None
) -> Measured:
    """Run both sides in turn, after one run of each that does not count."""
    times: tuple[list[float], list[float]] = ([], [])
    begun = perf_counter()
    for number in range(ROUNDS + 1):
        for run, taken in zip((small, large), times, strict=True):
            start = perf_counter()
            run(number)
            taken.append((perf_counter() - start) * 1000)
        if perf_counter() - begun > SECONDS_PER_COMMAND:
            break
    counted = [taken[1:] or taken for taken in times]
    return Measured(name, median(counted[0]), median(counted[1]), len(counted[0]), target)


def measure_command(command: Command, sides: Sides) -> Measured:
    """Each round asks for the next of the marked boxes."""

    def on(number_of_side: int) -> Callable[[int], None]:
        side = sides[number_of_side]
        return lambda number: side.run(command.line(side.marked[number % len(side.marked)]))

    return measure(command.name, on(0), on(1), command.target)


def measure_completion(words: str, sides: Sides) -> Measured:
    """With a connection of its own each time, as a person's Tab has it."""
    small, large = sides
    return measure(
        f"Tab behind `cbx {words}`", lambda _: small.complete(words), lambda _: large.complete(words), None
    )
