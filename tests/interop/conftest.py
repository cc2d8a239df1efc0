"""The two programs, each a process of its own, on a fresh database of a throw-away server."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.interop.prepare import ROOT, library_python

PROJECT = "shop"
PATIENCE = 120
LIBRARY_SIDE = Path(__file__).with_name("library.py")
PROFILE = "name: clerk\nsystem_prompt: You are a clerk.\n"

# Without the library there is nothing here to run; `make interop` says so, and fails.
collect_ignore_glob = [] if library_python() else ["test_*.py"]


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The answer of a command that must succeed."""
        return json.loads(self.text())

    def text(self) -> str:
        """What a command that must succeed printed."""
        assert self.code == 0, self.err
        return self.out.strip()


@dataclass(frozen=True)
class Cbx:
    """The command line, on one database unless `environment` names none."""

    environment: Mapping[str, str]

    def __call__(self, *arguments: str, stdin: str = "") -> Ran:
        """Run `cbx` on `arguments`."""
        ran = subprocess.run(
            [sys.executable, "-m", "cardbox_cli", *arguments],
            input=stdin.encode(),
            capture_output=True,
            env=self.environment,
            cwd=ROOT,
            timeout=PATIENCE,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    @contextmanager
    def started(self, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
        """A running `cbx`, its streams piped."""
        with subprocess.Popen(
            [sys.executable, "-m", "cardbox_cli", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=ROOT,
        ) as process:
            try:
                with killed_if_late(process):
                    yield process
            finally:
                process.kill()


@contextmanager
def killed_if_late(process: "subprocess.Popen[str]") -> Iterator[None]:
    """Kill `process` if this block takes longer than anyone waits, so that no check waits for ever."""
    watchdog = Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


class LibraryError(Exception):
    """What the library raised, as CLASS: message."""


class Library:
    """The library's adapter, in its own process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def ask(self, do: str, **arguments: Any) -> Any:
        """The answer to one request. Raises LibraryError."""
        self.send(do, **arguments)
        return self.answer()

    def send(self, do: str, **arguments: Any) -> None:
        """Send a request and go on; `answer` waits for what comes of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest request without one."""
        assert self.process.stdout is not None
        with killed_if_late(self.process):
            line = self.process.stdout.readline()
        assert line, "the library went away, or kept its answer"
        answer = json.loads(line)
        if "error" in answer:
            raise LibraryError(answer["error"])
        return answer["answer"]


@contextmanager
def library_on(url: str) -> Iterator[Library]:
    """The library on a database that it has not opened yet."""
    with subprocess.Popen(
        [str(library_python()), str(LIBRARY_SIDE), url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Library(process)
        finally:
            process.kill()


@dataclass(frozen=True)
class Shared:
    """A database that both programs have open."""

    url: str
    cbx: Cbx
    peer: Library

    def ask(self, do: str, **arguments: Any) -> Any:
        """Ask the library about the project that cbx works in."""
        return self.peer.ask(do, project=PROJECT, **arguments)

    def card_ids(self, box_id: str) -> list[str]:
        """The ids of a box, on which both must agree."""
        seen: list[str] = self.cbx("box", "show", box_id, "-o", "json").json()["card_ids"]
        assert self.ask("load_box", box_id=box_id)["card_ids"] == seen
        return seen


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What cbx runs in: a server of its own, removed at the end."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CBX_", "PG"))}
    chosen = {**plain, "CBX_HOME": str(tmp_path_factory.mktemp("cbx-home")), "CBX_PROJECT": PROJECT}
    yield chosen
    Cbx(chosen)("db", "destroy", "--yes").text()


@pytest.fixture(scope="session")
def server_url(environment: dict[str, str]) -> str:
    return Cbx(environment)("db", "url").text()


@pytest.fixture
def url(server_url: str) -> str:
    """A database without any table."""
    name = f"interop_{uuid.uuid4().hex}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return make_conninfo(server_url, dbname=name)


@pytest.fixture
def cbx(environment: dict[str, str], url: str) -> Cbx:
    return Cbx({**environment, "CBX_DATABASE_URL": url})


@pytest.fixture
def made_by_cbx(url: str, cbx: Cbx) -> Iterator[Shared]:
    """cbx made the tables; then the library opened the database."""
    cbx("db", "init", "--yes").text()
    with library_on(url) as library:
        library.ask("open")
        yield Shared(url, cbx, library)


@pytest.fixture
def made_by_library(url: str, cbx: Cbx) -> Iterator[Shared]:
    """The library made the tables; cbx has added nothing."""
    with library_on(url) as library:
        library.ask("open")
        yield Shared(url, cbx, library)
