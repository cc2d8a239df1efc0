"""The clock of one side, and, as a script, a process that runs our side of the rows of a tree of its own.

`python side.py` reads the name of a row on stdin, prepares it, and prints `{"units": …}`. After that it
runs our side of the row for each line `run` and prints `{"seconds": …}`, until a line `end`. Each answer is
a line of JSON. It imports `cardbox_cli` and `benchmarks` from the current directory, and nothing from its
own tree.
"""

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, TextIO

INTERRUPTED, TERMINATED = 130, 143


class Timed(Protocol):
    """A side of a row, as `benchmarks.measure.Side` of any tree is one."""

    @property
    def run(self) -> Callable[[], object]:
        """The work that is timed."""

    @property
    def before(self) -> Callable[[], object]:
        """Work in front of each run that is not timed."""

    @property
    def units(self) -> int:
        """How many units a run does."""

    @property
    def tells(self) -> bool:
        """True if `run` returns its own result."""


def seconds(side: Timed) -> float:
    """Run `side` once; the seconds per unit, or the result that it returns."""
    side.before()
    with _collector_off():
        begun = perf_counter()
        result = side.run()
        if side.tells:
            return float(str(result))
        del result  # freeing what was made is a part of the work
        return (perf_counter() - begun) / side.units


@contextmanager
def _collector_off() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def main(tree: Path) -> None:
    """Serve the rows of `tree` until the end of stdin."""
    answers = _private_stdout()
    sys.path.insert(0, str(tree))
    os.environ["PYTHONPATH"] = str(tree)

    import cardbox_cli
    from benchmarks.__main__ import ROWS
    from benchmarks.workbench import Workbench

    assert Path(str(cardbox_cli.__file__)).is_relative_to(tree), cardbox_cli.__file__
    rows = {row.name: row for row in ROWS}
    with Workbench.open() as bench:
        _check_commands(tree, bench.environment())
        for line in sys.stdin:
            _serve(rows.get(line.strip()), bench, answers)


def _serve(row: Any, bench: Any, answers: TextIO) -> None:
    from benchmarks.measure import Missing

    if row is None:
        return _answer(answers, missing="it has no such row")
    try:
        with row.prepare(bench) as (ours, _):
            _answer(answers, units=ours.units)
            while sys.stdin.readline() == "run\n":
                gc.collect()
                _answer(answers, seconds=seconds(ours))
    except Missing as exc:
        _answer(answers, missing=str(exc))


def _answer(answers: TextIO, **values: object) -> None:
    print(json.dumps(values), file=answers, flush=True)


def _private_stdout() -> TextIO:
    """A stream to the stdout of now; whatever else prints there, prints on stderr from here on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _check_commands(tree: Path, environment: dict[str, str]) -> None:
    """Make sure that commands of rows run the `cardbox_cli` of `tree`, too."""
    script = "import cardbox_cli; print(cardbox_cli.__file__)"
    run = [sys.executable, "-c", script]
    file = subprocess.check_output(run, env=environment, cwd=tree, text=True).strip()
    assert Path(file).is_relative_to(tree), file


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        main(Path.cwd())
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(INTERRUPTED)
