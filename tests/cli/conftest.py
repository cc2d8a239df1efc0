"""What the tests of the command line share: standard input, real processes, real terminals, small writers."""

import fcntl
import io
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import pytest

from cardbox_cli.cli import completion_candidates
from cardbox_cli.entry import main
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT, Cbx, Result

PATIENCE = 120

Offered = Callable[..., dict[str, str]]


@pytest.fixture
def offline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cbx:
    """Run a command line in this process where no database can be reached."""
    monkeypatch.setenv("CBX_DATABASE_URL", "host=127.0.0.1 port=1")
    monkeypatch.setenv("CBX_PROJECT", PROJECT)

    def run(*arguments: str) -> Result:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], None]:
    """Make a text, or bytes, the standard input of the next command in this process."""

    def put(text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return put


@pytest.fixture
def add(cbx: Cbx) -> Callable[..., str]:
    """Add a card that says `text`; its id."""

    def add_card(text: str = "hello", *options: str, type: str = "task.instruction") -> str:
        return succeed(cbx("card", "add", "--type", type, "--text", text, *options, "-o", "id")).strip()

    return add_card


@pytest.fixture
def box_of(cbx: Cbx) -> Callable[..., str]:
    """Make a box of card ids; its id."""

    def make(*card_ids: str, title: str | None = None, project: str = PROJECT) -> str:
        options = ["--title", title] if title else []
        made = cbx("-p", project, "box", "create", *card_ids, "--allow-dangling", *options, "-o", "id")
        return succeed(made).strip()

    return make


@pytest.fixture
def offered(cbx: Cbx, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offered:
    """What is offered at the end of a line, in this process: value and description, files as ''."""
    # A loaded machine may take its time; that it may not `test_completion.py` tests in processes.
    monkeypatch.setattr(completion_candidates, "SECONDS", 600)

    def ask(line: str, shell: str = "zsh") -> dict[str, str]:
        monkeypatch.setenv(completion_candidates.LINE, line)
        capsys.readouterr()
        completion_candidates.answer(shell)
        rows = [row.split("\t") for row in capsys.readouterr().out.splitlines()]
        return {value: said for _, value, said in rows}

    return ask


def succeed(result: Result) -> str:
    """What a command that must succeed printed."""
    assert result.code == 0, result.err
    return result.out


def lines(result: Result) -> list[str]:
    """The lines that a command that must succeed printed."""
    return succeed(result).splitlines()


@dataclass(frozen=True)
class Shell:
    """Commands as processes of their own on the test's database, in an empty folder.

    What lies in the folder `programs`, such as `cbx`, comes first on their path.
    """

    environment: Mapping[str, str]
    folder: Path
    programs: Path

    @contextmanager
    def started(self, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
        """A running `cbx`, its streams piped. Ctrl-C reaches it however the tests were started."""
        code = (
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from cardbox_cli.entry import script; script()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(self.environment),
            cwd=self.folder,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *arguments: str, stdin: bytes = b"", **variables: str) -> Result:
        """Run `cbx` on `arguments`."""
        return self._run([sys.executable, "-m", "cardbox_cli", *arguments], stdin, variables)

    def line(self, text: str, *, by: Sequence[str] = ("bash",), **variables: str) -> Result:
        """Run a line of bash, or of another shell; a failing part of a pipe does not hide."""
        return self._run([*by, "-o", "pipefail", "-c", text], b"", variables)

    def python(self, code: str) -> Result:
        """Run Python code."""
        return self._run([sys.executable, "-c", code], b"", {})

    def _run(self, command: list[str], stdin: bytes, variables: Mapping[str, str]) -> Result:
        ran = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            env={**self.environment, **variables},
            cwd=self.folder,
            timeout=PATIENCE,
            check=False,
        )
        return Result(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def on_terminal(self, *arguments: str, typed: str = "", columns: int = 100, **variables: str) -> Result:
        """Run `cbx` with all its streams on a pseudo-terminal, on which `typed` is typed.

        `out` is all that reached the terminal, what was typed too.
        """
        return self._on_terminal(["-m", "cardbox_cli", *arguments], typed, columns, variables)

    def all_on_terminal(
        self, commands: Sequence[Sequence[str]], typed: str = "", columns: int = 200, **variables: str
    ) -> list[tuple[Sequence[str], str]]:
        """Run command lines one after the other in one process on a terminal; what each showed."""
        code = (
            "import sys; from cardbox_cli.entry import main\n"
            f"for words in {list(map(list, commands))!r}: main(words); print({_NEXT!r}, flush=True)"
        )
        shown = self._on_terminal(["-c", code], typed, columns, variables).out.split(_NEXT + "\n")
        return list(zip(commands, shown[:-1], strict=True))

    def _on_terminal(
        self, words: list[str], typed: str, columns: int, variables: Mapping[str, str]
    ) -> Result:
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.write(ours, typed.encode())
        with subprocess.Popen(
            [sys.executable, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**self.environment, **variables},
            cwd=self.folder,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            watchdog = Timer(PATIENCE, process.kill)
            watchdog.start()
            shown = _read_all(ours)
            code = process.wait()
            watchdog.cancel()
        os.close(ours)
        return Result(code, shown.decode().replace("\r\n", "\n"), "")


_NEXT = "-- next --"


def _read_all(terminal: int) -> bytes:
    """Everything that is written to a terminal until its last writer has closed it."""
    pieces = []
    with suppress(OSError):  # Linux says EIO when nobody holds the other end
        while piece := os.read(terminal, 65536):
            pieces.append(piece)
    return b"".join(pieces)


@pytest.fixture
def shell(target: Target, tmp_path: Path, home: Path) -> Shell:
    """Run `cbx` as a process of its own, in an empty folder and a plain environment."""
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "cbx"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cardbox_cli "$@"\n')
    script.chmod(0o755)
    folder = tmp_path / "here"
    folder.mkdir()
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL", "PYTHONPATH") if name in os.environ}
    environment = {
        **kept,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "CBX_HOME": str(home),
        "CBX_PAGER": "",
        "CBX_DATABASE_URL": target.conninfo or "",
        "CBX_PROJECT": PROJECT,
    }
    return Shell(environment, folder, programs)
