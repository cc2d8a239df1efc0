"""Striking commands at the points that they pass, and looking at what is left.

A `Scene` is a place where commands run: variables that lead them to a database, and a folder of files. A
`Stage` makes any number of scenes that are alike. `explore` kills a command at every point that it passes after
a write, looks at what is left, and runs it again. The points are those of `cardbox_cli/faults.py`: before each statement,
before and after each COMMIT, and the steps of making a server.
"""

import difflib
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from cardbox_cli.settings import TEST_FAULT, TEST_FAULT_LOG
from cardbox_cli.store.connection.queries import query
from cardbox_cli.store.embedded import EmbeddedServer
from tests.conftest import PROJECT, Result
from tests.crash.processes import Command, fork, until
from tests.databases import TEMPLATE, Databases

Connection = psycopg.Connection[Any]
State = Callable[[Connection], list[str]]


@dataclass(frozen=True)
class Scene:
    """Where commands run: the variables that lead them to a database, its address, and their folder."""

    environment: Mapping[str, str]
    conninfo: str
    folder: Path

    @contextmanager
    def started(self, *arguments: str, stdin: bytes = b"", **variables: str) -> Iterator[Command]:
        """A running `cbx`; it is killed in the end if it still runs then."""
        with fork(arguments, {**self.environment, **variables}, self.folder, stdin) as command:
            yield command

    def run(self, *arguments: str, stdin: bytes = b"", **variables: str) -> Result:
        """Run `cbx` to its end."""
        with self.started(*arguments, stdin=stdin, **variables) as command:
            return command.result()

    def points(self, *arguments: str, stdin: bytes = b"") -> tuple[Result, list[str]]:
        """Run `cbx`; how it ended, and the points that it passed, such as "commit:1"."""
        log = self.folder / "points"
        log.unlink(missing_ok=True)
        result = self.run(*arguments, stdin=stdin, **{TEST_FAULT_LOG.name: str(log)})
        return result, log.read_text().splitlines() if log.exists() else []

    def kill(self, point: str, *arguments: str, stdin: bytes = b"") -> None:
        """Run `cbx` and kill it at `point`. The database notices a moment later: `connection` waits for that."""
        assert self.strike(point, *arguments, stdin=stdin), f"at {point} it was not killed: it came to none"

    def strike(self, point: str, *arguments: str, stdin: bytes = b"") -> bool:
        """`kill` for a command that does not always come to the same points: whether it was killed."""
        result = self.run(*arguments, stdin=stdin, **{TEST_FAULT.name: f"SIGKILL:{point}"})
        assert result.code in (-signal.SIGKILL, 0), f"at {point} it was not killed, but failed: {result}"
        return result.code != 0

    @contextmanager
    def stopped(self, point: str, *arguments: str, stdin: bytes = b"") -> Iterator[Command]:
        """A `cbx` that waits at `point` until it may `go_on`."""
        with self.started(*arguments, stdin=stdin, **{TEST_FAULT.name: f"SIGSTOP:{point}"}) as command:
            command.wait_until_stopped()
            yield command

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """The database, once nobody else is connected to it."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            until(lambda: _sessions(connection) == 1)
            yield connection


def scene_at_home(server: EmbeddedServer, folder: Path) -> Scene:
    """A scene on an embedded server of its own, which commands make and start; the project is the folder's name."""
    variables = {"CBX_HOME": str(server.home), "CBX_PROJECT": folder.name, "PATH": os.environ["PATH"]}
    return Scene(variables, server.conninfo(), folder)


def _sessions(connection: Connection) -> int:
    return int(value(connection, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"))


def value(connection: Connection, query: str) -> Any:
    """The one value that `query` selects."""
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


# --- scenes that are alike


class Stage:
    """Makes scenes on the databases of a server, as copies of one that was prepared.

    `files` are the files of the folder, `prepare` makes the database what it is before the command.
    """

    def __init__(
        self,
        databases: Databases,
        folder: Path,
        *,
        files: Mapping[str, str | bytes] | None = None,
        prepare: Callable[[Scene], object] = lambda scene: None,
        template: str = TEMPLATE,
    ) -> None:
        self._databases = databases
        self._folder = folder
        for name, text in (files or {}).items():
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        self._template = databases.make(template)
        prepare(self._scene(self._template))

    def _scene(self, name: str) -> Scene:
        conninfo = self._databases.target(name).conninfo or ""
        kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        return Scene({**kept, "CBX_DATABASE_URL": conninfo, "CBX_PROJECT": PROJECT}, conninfo, self._folder)

    @contextmanager
    def scene(self) -> Iterator[Scene]:
        """A fresh scene."""
        name = self._databases.make(self._template)
        try:
            yield self._scene(name)
        finally:
            self._databases.drop(name)

    def close(self) -> None:
        """Remove what was prepared."""
        self._databases.drop(self._template)


# --- what is there

_TABLES = """
SELECT n.nspname, c.relname
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT LIKE ALL (ARRAY['pg\\_%', 'information\\_schema']) ORDER BY 1, 2
"""
_ROWS = sql.SQL("SELECT to_jsonb(t)::text FROM {} AS t ORDER BY ctid")
_TIME = re.compile(r'"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^"]*"')
# The hash of a request is of the ids in it.
_HASH = re.compile(r'(?<="request_sha256": ")[0-9a-f]{64}')
_SPAN = re.compile(r"(?<=-)[0-9a-f]{16}(?=-0[01]\b)")
_ID = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{32}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def contents(connection: Connection) -> list[str]:
    """Every table and its rows, a line each, as two runs of one command have them in common.

    Times, the spans of traces and hashes of ids are masked, and ids numbered in the order in which they are mentioned.
    """
    lines: list[str] = []
    for schema, table in connection.execute(_TABLES).fetchall():
        rows = connection.execute(_ROWS.format(sql.Identifier(schema, table)))
        texts = [_HASH.sub("(hash)", _SPAN.sub("(span)", _TIME.sub('"(time)"', text))) for (text,) in rows]
        lines += [f"{schema}.{table}:", *sorted(texts, key=lambda text: _ID.sub("", text))]
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"id-{numbers.setdefault(found[0].replace('-', ''), len(numbers))}"

    return [_ID.sub(number, line) for line in lines]


# --- the exploration


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what there was then."""

    result: Result
    state: list[str]


def around_steps(points: list[str]) -> list[str]:
    """Those of a worker's points at which something of a turn has, or has not, been committed just then.

    A step begins, and a result is stored, by a statement that is a transaction of its own; what a worker
    sends next reads what the turn has written.
    """
    names = ("commit", "committed", "begin_step", "write_own_cards", "hold_output")
    return [point for point in points if point.partition(":")[0] in names]


def after_writes(points: list[str], *, in_one_transaction: bool = False) -> list[str]:
    """The points behind a statement that may have written something, and those around each COMMIT.

    A kill at any other point leaves what a kill at the point before it leaves. In one transaction it is enough to
    come behind the first and the last of many statements of one name.
    """
    times = Counter(map(_name, points)) if in_one_transaction else Counter()
    return [
        point
        for before, point in pairwise(["", *points])
        if point.startswith("commit")
        or not (_only_reads(_name(before)) or 1 < _number(before) < times[_name(before)])
    ]


def _name(point: str) -> str:
    return point.rpartition(":")[0]


def _number(point: str) -> int:
    return int(point.rpartition(":")[2] or 0)


_WRITES = re.compile(
    r"(?<!FOR )(?<!FOR NO KEY )\bUPDATE\b|\b(INSERT|DELETE|MERGE|COPY|CREATE|ALTER|DROP|TRUNCATE|pg_notify)\b"
)


def _only_reads(name: str) -> bool:
    """Whether this is the name of a query that changes nothing."""
    try:
        return _WRITES.search(query(name)) is None
    except KeyError:
        return False


def explore(stage: Stage, *arguments: str, stdin: bytes = b"", state: State = contents) -> list[str]:
    """Kill a command that is one transaction at every point `after_writes`, and run it again.

    Before its COMMIT a kill must leave what there was, and the run after all these kills end as an undisturbed
    one does; from then on it must leave what an undisturbed one leaves, and a run after it end as a second one
    does: same exit code, same `state`. Returns the points.
    """
    before, once, twice, points = _undisturbed(stage, arguments, stdin, state)
    commit = max(number for number, point in enumerate(points) if point.startswith("committed:"))
    with stage.scene() as scene:
        for point in after_writes(points[:commit], in_one_transaction=True):
            left = _kill(scene, point, arguments, stdin, state)
            _expect(left, before, f"what a kill at {point} leaves")
        _expect_end(_run(scene, arguments, stdin, state), once, "after all kills before the commit")
    for point in after_writes(points[commit:]):
        with stage.scene() as scene:
            left = _kill(scene, point, arguments, stdin, state)
            _expect(left, once.state, f"what a kill at {point} leaves")
            _expect_end(_run(scene, arguments, stdin, state), twice, f"after a kill at {point}")
    return points


def explore_steps(
    stage: Stage,
    *arguments: str,
    stdin: bytes = b"",
    state: State = contents,
    invariant: Callable[[Connection], object],
) -> list[str]:
    """Kill a command of several transactions at every point `after_writes`, and run it again.

    What a kill leaves is for `invariant` to judge, which raises. The run after it must end as an undisturbed one
    does: same exit code, same `state`. Returns the points.
    """
    _, once, _, points = _undisturbed(stage, arguments, stdin, state)
    for point in after_writes(points):
        with stage.scene() as scene:
            _kill(scene, point, arguments, stdin, state)
            with scene.connection() as connection:
                invariant(connection)
            _expect_end(_run(scene, arguments, stdin, state), once, f"after a kill at {point}")
    return points


def _undisturbed(
    stage: Stage, arguments: Sequence[str], stdin: bytes, state: State
) -> tuple[list[str], Ended, Ended, list[str]]:
    """What there is before a command, the ends of a first and of a second run, and the points of the first."""
    with stage.scene() as scene:
        with scene.connection() as connection:
            before = state(connection)
        result, points = scene.points(*arguments, stdin=stdin)
        with scene.connection() as connection:
            once = Ended(result, state(connection))
        twice = _run(scene, arguments, stdin, state)
    assert result.code == 0, result.err
    assert once.state != before, "a command that changes nothing proves nothing here"
    return before, once, twice, points


def _kill(scene: Scene, point: str, arguments: Sequence[str], stdin: bytes, state: State) -> list[str]:
    scene.kill(point, *arguments, stdin=stdin)
    with scene.connection() as connection:
        return state(connection)


def _run(scene: Scene, arguments: Sequence[str], stdin: bytes, state: State) -> Ended:
    result = scene.run(*arguments, stdin=stdin)
    with scene.connection() as connection:
        return Ended(result, state(connection))


def _expect_end(found: Ended, expected: Ended, when: str) -> None:
    code = expected.result.code
    assert found.result.code == code, f"the run {when} ends not with {code}, but: {found.result}"
    _expect(found.state, expected.state, f"what the run {when} makes")


def _expect(found: list[str], expected: list[str], what: str) -> None:
    difference = "\n".join(difflib.unified_diff(expected, found, "expected", "found", lineterm="", n=0))
    assert not difference, f"{what} is not as expected:\n{difference}"
