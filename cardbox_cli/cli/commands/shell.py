"""`cbx shell`: many commands in one process and on one connection, a line each.

Owns where the lines come from. How they are run is `cli/shell`.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

from typer import Argument, Option

from cardbox_cli.cli.parameters.inputs import read_text, source_name, standard_input
from cardbox_cli.cli.parameters.types import FILE
from cardbox_cli.cli.session import session
from cardbox_cli.cli.shell.lines import Shell
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.settings import VALUE_SIZE

# Bytes of a line.
_MOST = VALUE_SIZE.value << 20


@verb(
    "cbx -p demo shell",
    "cbx shell nightly.cbx --keep-going",
    "cbx box list -o id | sed 's/^/box verify /' | cbx shell -",
)
def command(
    file: Annotated[
        str | None,
        Argument(click_type=FILE, help="Commands, one a line; - for stdin. Default: the terminal."),
    ] = None,
    keep_going: Annotated[
        bool, Option("--keep-going", "-k", help="Run the lines after a failure, too.")
    ] = False,
) -> int:
    """Run commands, one a line, with or without `cbx` before them; # begins a comment.

    Stops at the first failure, with its exit code. On a terminal it asks for lines and goes on after a
    failure; Tab completes, and Ctrl-D, exit or quit leave. Common options given here are those of each line
    that has none of its own; `use PROJECT` goes on in another project.
    """
    if isinstance(session().process, Shell):
        raise UsageError("a shell does not start another one", hint="go on in this one")
    with Shell(session()) as shell:
        if file is None and sys.stdin.isatty() and sys.stdout.isatty():
            from cardbox_cli.cli.shell.prompt import converse

            return converse(shell)
        with _script(file or "-") as lines:
            return shell.run_script(lines, source_name(file or "-"), keep_going=keep_going)


@contextmanager
def _script(path: str) -> Iterator[Iterable[str]]:
    """The lines of a file, or those of standard input as they come; the commands then find that empty."""
    if path != "-":
        yield read_text(path).split("\n")
        return
    source, lines = sys.stdin, standard_input()
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield _decoded(iter(partial(lines.readline, _MOST + 1), b""))
        finally:
            sys.stdin = source


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > _MOST:
            raise InvalidInput(f"standard input:{number} is a line of more than {VALUE_SIZE}")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as exc:
            raise InvalidInput(f"standard input:{number} is not UTF-8", hint="convert it") from exc
