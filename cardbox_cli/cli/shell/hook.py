"""The co-process of `cbx shell --hook`: it runs the simple commands of one shell, on one connection.

A folder that only its owner can enter holds all that the two have in common. `requests` is a FIFO with a line
for each request, the number of its place. A place is N.request, which a shell makes if it is not there, and
N.status, a FIFO that the shell holds open as long as it waits. The answer is a line of N.status: exit code,
and a letter for each piece of output, which is the file N.0, N.1 and so on. Where the answer is `process`,
nothing was executed, and the shell runs the command as a process of its own. N.begun says that something may
have been.

What the function in the shell does is a file of `scripts`.
"""

import errno
import os
import select
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cardbox_cli.cli.session import Session
from cardbox_cli.cli.shell.captured import VARIABLES, Output, surroundings
from cardbox_cli.cli.shell.lines import Shell
from cardbox_cli.errors import InvalidInput

if TYPE_CHECKING:
    import click

    from cardbox_cli.cli.verb import Verb

SHELLS = ("bash", "zsh")

SLOTS = 16

# Seconds until the shell has to have told its process id.
_FIRST = 10.0
# Seconds between looks at whether somebody still waits for what runs, and whether the shell lives.
# More than the 0.1 s after which psycopg, waiting, lets Python see a signal; each signal starts those anew.
_LOOK = 0.25
_LOOK_FOR_SHELL = 1.0

# Numbers of files that the process that asked for the hook may have had open.
_DESCRIPTORS = 1024

# Text in a word that may stand for what only the shell's own process has: its standard input, open files.
_OF_PROCESS = ("/dev/", "/proc/")

_PROCESS = "process"
# In place of pieces: they could not be stored.
_UNWRITTEN = "x"


class Request(NamedTuple):
    """What a shell asks for. `out_terminal` and `err_terminal`: whether its output goes to one."""

    words: list[str]
    folder: str
    out_terminal: bool
    err_terminal: bool
    variables: dict[str, str]


def start(shell: str) -> str:
    """Start the co-process; the script that the shell evaluates. It waits for the shell to say who it is."""
    folder = Path(tempfile.mkdtemp(prefix="cbx-hook-"))
    os.mkfifo(folder / "requests", 0o600)
    for slot in range(1, SLOTS + 1):
        os.mkfifo(folder / f"{slot}.status", 0o600)
    # Open from here on: what the shell writes before the co-process reads is not lost.
    requests = os.open(folder / "requests", os.O_RDWR | os.O_NONBLOCK)
    sys.stdout.flush()
    sys.stderr.flush()
    server = os.fork()
    if not server:
        _serve(folder, requests)
    script = (Path(__file__).parent / "scripts" / f"hook.{shell}").read_text(encoding="utf-8")
    for name, value in (
        ("FOLDER", shlex.quote(str(folder))),
        ("SERVER", str(server)),
        ("SLOTS", str(SLOTS)),
        ("VARIABLES", " ".join(VARIABLES)),
        ("ALTERNATIVES", "|".join(VARIABLES)),
    ):
        script = script.replace(f"@{name}@", value)
    return script


def _serve(folder: Path, requests: int) -> None:
    """Be the co-process, from the fork to its end."""
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.closerange(3, requests)
        os.closerange(requests + 1, _DESCRIPTORS)
        os.chdir("/")
        with Hook(folder, requests) as hook:
            hook.serve()
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        # After a failure the folder stays: the shell sees by it whether a command had begun.
        os._exit(0)


class Hook(Shell):
    """The co-process of one shell."""

    def __init__(self, folder: Path, requests: int) -> None:
        super().__init__(Session())
        self._folder = folder
        self._requests = requests
        self._read = b""
        self._shell: int | None = None
        self._began = time.monotonic()
        self._ends = False
        self._answered: set[str] = set()
        self._request = Request([], "/", False, False, {})
        self._refused = False

    def serve(self) -> None:
        """Answer requests until the shell is gone, or SIGTERM comes; a command that runs is not cut off."""
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        while not self._ends and self._lives():
            with suppress(KeyboardInterrupt):
                select.select([self._requests], [], [], _LOOK_FOR_SHELL)
                self._free_answered()
                for line in self._lines():
                    self._heed(line)

    def admits(self, verb: "Verb", context: "click.Context") -> bool:
        """Whether the command is one that needs nothing of the shell's own process."""
        admitted = (
            verb.simple
            and not context.params.get("watch")
            and not (verb.pages and self._request.out_terminal)
            and not any(_is_of_process(word) for word in _said(self._request.words, context))
        )
        self._refused = not admitted
        return admitted

    def _end(self, *_: object) -> None:
        self._ends = True

    def _lives(self) -> bool:
        if self._shell is None:
            return time.monotonic() - self._began < _FIRST
        try:
            os.kill(self._shell, 0)
        except OSError:
            return False
        return True

    def _lines(self) -> Iterator[str]:
        with suppress(BlockingIOError):
            self._read += os.read(self._requests, 4096)
        *lines, self._read = self._read.split(b"\n")
        return iter([line.decode("ascii", "replace") for line in lines])

    def _heed(self, line: str) -> None:
        if line == "end":
            self._ends = True
        elif line.startswith("shell ") and self._shell is None:
            self._shell = int(line.removeprefix("shell "))
        elif line.isdigit() and 1 <= int(line) <= SLOTS:
            self._free_answered()
            self._answer(line)

    def _answer(self, slot: str) -> None:
        path = self._folder / f"{slot}.request"
        request = _parsed(path.read_bytes())
        # It may hold passwords; the file itself keeps the place.
        os.truncate(path, 0)
        answer = _PROCESS
        try:
            if request is not None and self._waits(slot) and _entered(request.folder):
                answer = self._run(slot, request)
        finally:
            self._answered.add(slot)
            with suppress(OSError):
                self._tell(slot, f"{answer}\n".encode())

    def _run(self, slot: str, request: Request) -> str:
        """The line that answers a request, once its command has run."""
        self._request, self._refused = request, False
        output = Output(self._folder / slot)
        begun = self._folder / f"{slot}.begun"
        begun.touch()
        with (
            surroundings(request.variables, output, request.out_terminal, request.err_terminal),
            self._interrupted_when_left(slot),
        ):
            self.settings = Session(process=self)
            code = self.run_words(list(request.words))
        begun.unlink()
        if self._refused:
            return _PROCESS
        try:
            return f"{code} {output.written()}"
        except OSError:
            return f"{InvalidInput.exit_code} {_UNWRITTEN}"

    @contextmanager
    def _interrupted_when_left(self, slot: str) -> Iterator[None]:
        """Within, the command is interrupted once its shell no longer waits: Ctrl-C, or its end."""

        def look(*_: object) -> None:
            if not self._waits(slot):
                signal.setitimer(signal.ITIMER_REAL, 0)
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _waits(self, slot: str) -> bool:
        """Whether the shell holds the FIFO of the answer open."""
        try:
            self._tell(slot, b"")
        except OSError as exc:
            return exc.errno != errno.ENXIO
        return True

    def _tell(self, slot: str, line: bytes) -> None:
        descriptor = os.open(self._folder / f"{slot}.status", os.O_WRONLY | os.O_NONBLOCK)
        try:
            if line:
                os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _free_answered(self) -> None:
        """Give the places free whose shells have read the answer, or are gone."""
        for slot in [each for each in self._answered if not self._waits(each)]:
            self._answered.remove(slot)
            Output(self._folder / slot).remove()
            (self._folder / f"{slot}.request").unlink()


def _parsed(data: bytes) -> Request | None:
    """A request: how many words, the words, the folder, two terminals, variables, `end`. None if cut."""
    fields = [os.fsdecode(each) for each in data.split(b"\0")]
    if len(fields) < 7 or fields[-2:] != ["end", ""]:
        return None
    words, rest = fields[1 : 1 + int(fields[0])], fields[1 + int(fields[0]) : -2]
    folder, out, err, *variables = rest
    named = dict(each.split("=", 1) for each in variables)
    if out and not named["COLUMNS"]:
        return None  # How wide the terminal is, the process itself finds out.
    return Request(
        words, folder, bool(out), bool(err), {name: value for name, value in named.items() if value}
    )


def _entered(folder: str) -> bool:
    """Whether this process could go where the shell is."""
    try:
        os.chdir(folder)
    except OSError:
        return False
    return True


def _said(words: list[str], context: "click.Context") -> Iterator[str]:
    """The words of a command, and the values that they give its options: `-f-` gives one the value `-`."""
    yield from words
    for value in context.params.values():
        yield from map(str, value if isinstance(value, list | tuple) else [value])


def _is_of_process(word: str) -> bool:
    if word in ("-", "@-") or word.endswith(("=-", "=@-")) or any(mark in word for mark in _OF_PROCESS):
        return True
    return any(_is_no_plain_file(each.removeprefix("@")) for each in (word, word.partition("=")[2]))


def _is_no_plain_file(name: str) -> bool:
    """Whether it is a device, a pipe or a socket, as standard input is here, too, or leads nowhere."""
    try:
        mode = os.stat(name).st_mode
    except (OSError, ValueError):
        return os.path.islink(name)
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
