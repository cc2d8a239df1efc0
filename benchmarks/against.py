"""Comparison of rows with another commit: our side of a row in both trees, in turn, and how the two compare.

`git archive` puts the commit into a temporary folder. A process of each tree (`side.py`) then prepares the
row as the `benchmarks` of that tree defines it, on a server and a database of its own, and runs our side of
it when it is asked to. So modules, options and tables may change between the two commits. The clock, the
rounds, their order, and the interpreter with its packages are this tree's.

The other commit needs `ROWS` in `benchmarks/__main__.py`, whose rows have `name` and `prepare`;
`Workbench.open()` and `environment()`; and the fields of `Side`. A row whose work changes gets a new name,
so that the same name means the same work.
"""

import io
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import msgspec

from benchmarks import side
from benchmarks.measure import ROOT, Missing, Row, Side, interleaved


class UnknownCommit(Exception):
    """A commit that this repository does not have, or a project that is not in a repository."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds per unit of each run of a row, or its other unit, in this tree and in the other one."""

    row: Row
    here: list[float]
    there: list[float]

    @property
    def ratios(self) -> list[float]:
        """Here divided by there, of each round."""
        return [here / there for here, there in zip(self.here, self.there, strict=True)]


class Tree:
    """A tree whose rows a process of its own prepares and runs."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self._name = name
        self._process = process

    @contextmanager
    def prepare(self, row: Row) -> Iterator[tuple[Side, int]]:
        """Our side of the row with this name, and the number of units of a run. Raises Missing."""
        answer = self._ask(row.name)
        if "missing" in answer:
            raise Missing(f"{self._name}: {answer['missing']}")
        try:
            yield Side(run=lambda: self._ask("run")["seconds"], tells=True), answer["units"]
        except Missing:  # in the other tree
            self._write("end")
            raise
        self._write("end")

    def _ask(self, line: str) -> dict[str, Any]:
        self._write(line)
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._name}: its process ended with exit code {self._process.wait()}")
        return msgspec.json.decode(answer, type=dict[str, Any])

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def compare(rows: Iterable[Row], commit: str, *, rounds: int | None = None) -> Iterator[Compared]:
    """Run our side of `rows` in this tree and in that of `commit`; report on stderr the rows that it lacks.

    Raises UnknownCommit.
    """
    with (
        _exported(commit) as folder,
        _serving("this tree", ROOT) as here,
        _serving(commit, folder) as there,
    ):
        for row in rows:
            try:
                yield _compare(row, here, there, rounds or row.rounds)
            except Missing as exc:
                print(f"{row.name} was not measured: {exc}", file=sys.stderr)


def _compare(row: Row, here: Tree, there: Tree, rounds: int) -> Compared:
    with here.prepare(row) as (ours, units), there.prepare(row) as (other, other_units):
        if units != other_units:
            raise Missing(f"a run does {units:,} units here and {other_units:,} there")
        times = interleaved(ours, other, rounds=rounds)
    return Compared(row=row, here=times[0], there=times[1])


@contextmanager
def _exported(commit: str) -> Iterator[Path]:
    """A temporary folder with the files of `commit`."""
    git = ["git", "archive", "--format=zip", commit]
    found = subprocess.run(git, cwd=ROOT, capture_output=True)
    if found.returncode:
        raise UnknownCommit(found.stderr.decode().strip())
    with tempfile.TemporaryDirectory(prefix="cbx-bench-") as folder:
        ZipFile(io.BytesIO(found.stdout)).extractall(folder)
        yield Path(folder).resolve()


@contextmanager
def _serving(name: str, tree: Path) -> Iterator[Tree]:
    # -P keeps the folder of the script, which is this tree's, from what the other tree imports.
    words = [sys.executable, "-P", side.__file__]
    with subprocess.Popen(
        words, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Tree(name, process)
