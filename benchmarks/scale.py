"""`python -m benchmarks.scale`: every command on 1,000,000 cards beside the same on 10,000, and those of
chats on one of 100,000 entries beside one of 1,000.

Both databases lie on one throw-away server. Whole commands run in this process, each database on a
connection that is kept, in turn: the start of a process, equal on both sides, would hide what differs.
Each round asks for another box. Prints medians and their ratio; exit code 8 when a target is missed.
"""

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks import scale_chats
from benchmarks.scale_data import (
    CARDS_PER_BOX,
    PROJECT,
    RARE_PHRASE,
    RARE_PIECE,
    RARE_TYPE,
    RARE_WORD,
    MarkedBox,
    fill,
)
from cardbox_cli.cli.completion.candidates import offers
from cardbox_cli.cli.session import ProcessContext, Session
from cardbox_cli.cli.shell.lines import Shell
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.migrations.upgrade import add_missing_tables
from cardbox_cli.store.views.completion import completion_snapshot

SMALL = 10_000
TARGET = 1.5
MISSED = 8
ROUNDS = 15
# A command that takes seconds is not asked as often.
SECONDS_PER_COMMAND = 10

PROFILE = """
name: reader
worker_target: nobody
llm_config: {model: any}
"""
RECIPE = """
description: All of one box
target_profile_config: {profile_name: reader}
arguments:
  box: {type: box_id, required: true, description: The box}
context_packing_config:
  inherit_context: {include_boxes_from_args: [box]}
"""

Line = Callable[[MarkedBox], str]


@dataclass(frozen=True)
class Side:
    """One of the two databases: its size, a shell on it, and the boxes that rounds ask for."""

    cards: int
    target: Target
    shell: Shell
    marked: list[MarkedBox]

    def run(self, line: str) -> None:
        """Run one command to its end. Raises RuntimeError when it fails."""
        said, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(said), redirect_stderr(errors):
            code = self.shell.run(line)
        if code:
            raise RuntimeError(f"cbx {line}: exit code {code}: {errors.getvalue()}")

    def complete(self, words: str) -> None:
        """Look up what the Tab key offers behind `words`."""
        session = Session(project_id=PROJECT, database_url=self.target.conninfo, process=_Patient())
        found = offers([*words.split(), ""], session)
        if not found.items:
            raise RuntimeError(f"nothing completes {words!r}")


class _Patient(ProcessContext):
    """Completion as it is, but for its hurry."""

    def completion_database(self, target: Target) -> AbstractContextManager[Database]:
        return completion_snapshot(target, milliseconds=60_000)


@dataclass(frozen=True)
class Command:
    """A command to measure. With `target`, the ratio that it may have."""

    name: str
    line: Line
    target: float | None = None


def commands(recipe: Path) -> list[Command]:
    """What is measured before the text index is built."""
    phrase = quote(f'"{" ".join(RARE_PHRASE)}"')
    return [
        Command("box show, whole id", lambda at: f"box show {at.box_id}", TARGET),
        Command("box show, short id", lambda at: f"box show {at.box_id[-8:]}", TARGET),
        Command("box show --tail 5", lambda at: f"box show {at.box_id[-8:]} --tail 5", TARGET),
        Command("card list", lambda at: "card list", TARGET),
        Command("card list --type, frequent", lambda at: "card list --type tool.result", TARGET),
        Command("card list --type, rare", lambda at: f"card list --type {RARE_TYPE}", TARGET),
        Command("card list --turn", lambda at: f"card list --turn {at.turn_id}", TARGET),
        Command("card list --tool-call-id", lambda at: f"card list --tool-call-id {at.tool_call_id}", TARGET),
        Command("card list --since 2h", lambda at: "card list --since 2h", TARGET),
        Command("pack", lambda at: f"pack --handover {recipe} --arg box={at.box_id}", TARGET),
        Command("box list", lambda at: "box list"),
        Command("card show, short id", lambda at: f"card show {at.card_id[-8:]}"),
        Command("card refs", lambda at: f"card refs {at.card_id}"),
        Command("render", lambda at: f"render --box {at.box_id}"),
        Command("card add", lambda at: "card add --type task.instruction --text 'One more'"),
        Command("box append", lambda at: f"box append {at.box_id[-8:]} {at.card_id}"),
        Command("db status", lambda at: "db status"),
        Command("db gc --dry-run", lambda at: "db gc --dry-run"),
        Command("card search, Chinese", lambda at: f"card search {RARE_PIECE}"),
        Command("card search, a word", lambda at: f"card search {RARE_WORD}"),
        Command("card search, a phrase", lambda at: f"card search {phrase}"),
    ]


def indexed_commands() -> list[Command]:
    """What is measured with the text index."""
    phrase = quote(f'"{" ".join(RARE_PHRASE)}"')
    return [
        Command("card search, a word, indexed", lambda at: f"card search {RARE_WORD}", TARGET),
        Command("card search, in 2 %, indexed", lambda at: f"card search {RARE_PHRASE[0]}"),
        Command("card search, a phrase, indexed", lambda at: f"card search {phrase}"),
        Command("card add, indexed", lambda at: "card add --type task.instruction --text 'One more'"),
    ]


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


def measure_command(command: Command, sides: tuple[Side, Side]) -> Measured:
    """Each round asks for the next of the marked boxes."""

    def on(side: Side) -> Callable[[int], None]:
        return lambda number: side.run(command.line(side.marked[number % len(side.marked)]))

    return measure(command.name, on(sides[0]), on(sides[1]), command.target)


def measure_completion(words: str, sides: tuple[Side, Side]) -> Measured:
    """With a connection of its own each time, as a person's Tab has it."""
    small, large = sides
    return measure(
        f"Tab behind `cbx {words}`", lambda _: small.complete(words), lambda _: large.complete(words), None
    )


def measure_all(sides: tuple[Side, Side], recipe: Path) -> Iterator[Measured]:
    """Everything, the text index built on the way."""
    for command in commands(recipe):
        yield measure_command(command, sides)
    for words in ("box show", "card show"):
        yield measure_completion(words, sides)
    for side in sides:
        start = perf_counter()
        side.run("db index-text")
        _tell(f"indexed the text of {side.cards:,} cards in {perf_counter() - start:.1f} s")
    for command in indexed_commands():
        yield measure_command(command, sides)


def measure_chats(sides: tuple[Side, Side]) -> Iterator[Measured]:
    """The commands on chats: a long one on the large side, a short one on the other."""
    lines = {
        "chat transcript, last 30": "chat transcript {key}",
        "chat show": "chat show {key}",
        "chat list, 10": "chat list {key} --limit 10",
        "chat load, a rare word": f"chat load {{key}} --query {scale_chats.RARE}",
        "chat load, in every context": f"chat load {{key}} --query {scale_chats.FREQUENT}",
        "chat load, a part of a word": f"chat load {{key}} --query {scale_chats.PIECE}",
        "chat send": "chat send {key} hello",
    }
    keys = [scale_chats.chat_key(entries) for entries in (scale_chats.SMALL, scale_chats.LARGE)]
    for name, line in lines.items():
        small, large = (partial(_run, *at, line) for at in zip(sides, keys, strict=True))
        yield measure(name, small, large, TARGET)


def _run(side: Side, key: str, line: str, _: int) -> None:
    side.run(line.format(key=key))


@contextmanager
def filled(server: EmbeddedServer, cards: int) -> Iterator[Side]:
    """A database of so many cards, and a shell on it."""
    name = f"cards_{cards}"
    with server.connect(autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    target = Target(server.conninfo(name), "the benchmark", server.home)
    start = perf_counter()
    with Database.connect(target) as database:
        add_missing_tables(database)
        marked = fill(database, max(1, cards // CARDS_PER_BOX))
    _tell(f"wrote {cards:,} cards in {perf_counter() - start:.1f} s")
    with Shell(Session(project_id=PROJECT, database_url=target.conninfo)) as shell:
        yield Side(cards, target, shell, marked)


def compare(cards: int, show: Callable[[Measured], None]) -> list[Measured]:
    """Measure everything on two fresh databases; `show` is told each as it comes."""
    with tempfile.TemporaryDirectory(prefix="cbx-scale-") as folder:
        os.environ["CBX_HOME"] = str(Path(folder, "cbx"))
        recipe, profile = Path(folder, "one-box.yaml"), Path(folder, "reader.yaml")
        recipe.write_text(RECIPE)
        profile.write_text(PROFILE)
        server = EmbeddedServer(Path(folder, "server"), announce=_tell)
        try:
            with filled(server, SMALL) as small, filled(server, cards) as large:
                for side in (small, large):
                    side.run(f"profile import {profile}")
                found = []
                for measured in measure_all((small, large), recipe):
                    show(measured)
                    found.append(measured)
                for side, entries in ((small, scale_chats.SMALL), (large, scale_chats.LARGE)):
                    _fill_chat(side, entries)
                for measured in measure_chats((small, large)):
                    show(measured)
                    found.append(measured)
                return found
        finally:
            server.destroy()


def _fill_chat(side: Side, entries: int) -> None:
    start = perf_counter()
    with Database.connect(side.target) as database:
        scale_chats.fill(database, entries)
    _tell(f"wrote a chat of {entries:,} entries in {perf_counter() - start:.1f} s")


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _as_json(measured: Measured) -> dict[str, Any]:
    return {
        "command": measured.name,
        "small_ms": round(measured.small_ms, 2),
        "large_ms": round(measured.large_ms, 2),
        "ratio": round(measured.ratio, 2),
        "target": measured.target,
        "missed": measured.missed,
        "rounds": measured.rounds,
    }


def _show_row(measured: Measured) -> None:
    times = f"{measured.small_ms:>9.1f} {measured.large_ms:>12.1f}"
    target = "" if measured.target is None else f"  {measured.target} ×{' missed' if measured.missed else ''}"
    print(f"{measured.name:<31} {times} {measured.ratio:>8.2f} ×{target}", flush=True)


def main() -> int:
    """Measure and print; 8 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--cards", type=int, default=1_000_000, metavar="N", help="cards of the large database"
    )
    asked = parser.parse_args()
    if not asked.json:
        print(f"{'median ms':<31} {SMALL:>9,} {asked.cards:>12,}      ratio  target")
    found = compare(asked.cards, (lambda _: None) if asked.json else _show_row)
    missed = [measured.name for measured in found if measured.missed]
    if asked.json:
        answer = {"small": SMALL, "large": asked.cards, "commands": [_as_json(each) for each in found]}
        print(json.dumps(answer, indent=2))
    if missed:
        _tell(f"missed: {', '.join(missed)}")
    return MISSED if missed else 0


if __name__ == "__main__":
    sys.exit(main())
