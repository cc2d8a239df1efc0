"""Commands as processes that can be stopped and killed, each a fork of one that has loaded cbx already.

So a command costs some 50 ms, where a new Python takes half a second. Imports nothing of the tests: each fork would
load that again.
"""

import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from cardbox_cli.cli.command_table import COMMANDS, root
from cardbox_cli.cli.tree import Noun

if TYPE_CHECKING:
    from tests.conftest import Result

PATIENCE = 120


def _command_modules() -> Iterator[str]:
    """Yield the modules of all commands."""
    for name, entry in COMMANDS.items():
        module = root().module_of(name)
        yield module
        if isinstance(entry, Noun):
            yield from (f"{module}.{each}" for each in entry.modules)


_FORKS = multiprocessing.get_context("forkserver")
# What is loaded when it is needed costs each fork its loading: so that it is loaded before.
_LAZY = (
    "cli.options.conversation_files",
    "cli.options.editor",
    "cli.terminal.output",
    "model.handwritten.recipes",
    "model.handwritten.profiles",
    "packing.pack",
    "packing.recipe_files",
    "execution.dispatch.dispatch",
    "execution.queue.claims",
    "execution.recovery.fixes",
    "execution.recovery.reaping",
    "execution.notifications.service",
    "conversations.importing",
    "store.migrations.upgrade",
    "store.embedded",
)
_FORKS.set_forkserver_preload(
    [
        "__main__",
        *_command_modules(),
        *(f"cardbox_cli.{name}" for name in _LAZY),
        "rich.table",
    ]
)


@dataclass(frozen=True)
class Command:
    """A running `cbx`, and the files that its streams are."""

    process: BaseProcess
    streams: Path

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def wait_until_stopped(self) -> None:
        """Wait until it has been stopped at its point."""
        until(lambda: self.process.exitcode is not None or _is_stopped(self.pid))
        assert self.process.exitcode is None, f"it ended before its point: {self.result()}"

    def go_on(self) -> None:
        """Let it run on after a stop."""
        os.kill(self.pid, signal.SIGCONT)

    def result(self) -> "Result":
        """How it ended, after waiting for that; the code is minus the signal that killed it."""
        from tests.conftest import Result

        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, "the command hangs"
        out, err = ((self.streams / name).read_text() for name in ("out", "err"))
        return Result(self.process.exitcode, out, err)


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


@contextmanager
def fork(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: bytes = b""
) -> Iterator[Command]:
    """A running `cbx` in `folder`, with these variables and no other; killed in the end if it still runs then."""
    with tempfile.TemporaryDirectory() as streams:
        for name, content in (("in", stdin), ("out", b""), ("err", b"")):
            Path(streams, name).write_bytes(content)
        process = _FORKS.Process(target=_be_cbx, args=(arguments, environment, folder, Path(streams)))
        process.start()
        try:
            yield Command(process, Path(streams))
        finally:
            process.kill()
            process.join()
            process.close()


def fork_on(
    descriptors: Sequence[int], arguments: Sequence[str], environment: Mapping[str, str], folder: str
) -> BaseProcess:
    """A running `cbx` whose streams are these three descriptors of ours. To be joined and closed by the caller."""
    process = _FORKS.Process(
        target=_be_cbx_on, args=(_Descriptors(descriptors), arguments, environment, folder)
    )
    process.start()
    return process


class _Descriptors:
    """Open files on their way to another process, where they are a list of numbers."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers

    def __reduce__(self) -> Any:
        return _arrived, ([reduction.DupFd(number) for number in self._numbers],)


def _arrived(descriptors: Sequence[Any]) -> list[int]:
    return [descriptor.detach() for descriptor in descriptors]


def _be_cbx(arguments: Sequence[str], environment: Mapping[str, str], folder: Path, streams: Path) -> None:
    """What the fork does: become the process that a shell would have started, with files as its streams."""
    kinds = (("in", os.O_RDONLY), ("out", os.O_WRONLY), ("err", os.O_WRONLY))
    _be_cbx_on([os.open(streams / name, flags) for name, flags in kinds], arguments, environment, folder)


def _be_cbx_on(
    descriptors: Sequence[int],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: str | Path,
) -> None:
    """The same with open files. Arguments that begin with `python -m MODULE` go to the `main` of that module."""
    main = _main(arguments)
    if arguments[:2] == ("python", "-m"):
        arguments = arguments[3:]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # Those of the server know of files that these numbers are no longer.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    sys.exit(main(arguments))


def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds. Looks closely at first, and ever less often."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < PATIENCE, "waited too long"
        time.sleep(min(0.02, 0.001 + waited / 20))


def _main(arguments: Sequence[str]) -> Callable[[Sequence[str]], int]:
    module = arguments[2] if arguments[:2] == ("python", "-m") else "cardbox_cli.entry"
    found: Callable[[Sequence[str]], int] = importlib.import_module(module).main
    return found
