"""`cbx shell`: commands line by line, in one process and on one connection."""

import sys
from typing import Annotated

from typer import Argument, Option

from cardbox_cli import __version__
from cardbox_cli.cli.interactive_shell import Shell, open_script, run_repl
from cardbox_cli.cli.options.input_files import source_name
from cardbox_cli.cli.options.value_types import FILE
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError


@verb(
    "shell",
    "cbx -p demo shell",
    "cbx shell nightly.cbx --keep-going",
    "cbx box list -o id | sed 's/^/box verify /' | cbx shell -",
)
def run_shell(
    file: Annotated[
        str | None,
        Argument(
            click_type=FILE, help="A file of commands, one per line; - for stdin. Default: the terminal."
        ),
    ] = None,
    keep_going: Annotated[bool, Option("--keep-going", "-k", help="Continue after a failed line.")] = False,
) -> int:
    """Run commands, one per line, with or without `cbx` before them. A # begins a comment.

    A script stops at the first failure, with its exit code. On a terminal, Tab completes, and Ctrl-D, exit or
    quit ends the shell. Common options given here apply to each line that does not set them; `use PROJECT`
    switches the project.
    """
    if isinstance(session().process, Shell):
        raise UsageError(
            "cbx shell cannot be started inside cbx shell", hint="type the command without `cbx shell`"
        )
    with Shell(session()) as shell:
        if file is None and sys.stdin.isatty() and sys.stdout.isatty():
            announce(f"cbx {__version__}: `help` lists the commands, Tab completes, Ctrl-D exits")
            return run_repl(shell)
        with open_script(file or "-") as lines:
            return shell.run_script(lines, source_name(file or "-"), keep_going=keep_going)
