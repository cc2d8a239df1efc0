"""Commands that need no database: whole processes against one that only imports typer."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.measure import Row, Side, Target, at_most, process
from benchmarks.workbench import Workbench, cbx, peer


def _row(name: str, *words: str, felt_by: str, target: Target) -> Row:
    return Row(
        name=name,
        what=f"cbx {' '.join(words)}",
        against="a script that only imports typer",
        felt_by=felt_by,
        target=target,
        rounds=20,
        prepare=partial(_prepare, words=words),
    )


@contextmanager
def _prepare(bench: Workbench, words: tuple[str, ...]) -> Iterator[tuple[Side, Side]]:
    environment = bench.environment()
    yield process(cbx(*words), environment), process(peer("import_typer"), environment)


ROWS = [
    _row(
        "startup-version",
        "--version",
        felt_by="everyone: no command starts faster than this one",
        target=at_most(1.1),
    ),
    _row("startup-help", "--help", felt_by="a person who looks up a command", target=at_most(1.1)),
    _row(
        "startup-completion",
        *("completion", "bash"),
        felt_by="a person who opens a terminal that loads the completion",
        target=at_most(1.3),
    ),
    _row(
        "startup-validate",
        *("handover", "validate", "handovers/delegate.yaml"),
        felt_by="an author of handovers, after each edit",
        target=at_most(3),
    ),
]
