"""The way into the command `cbx`: from a process, and from Python."""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from cardbox_cli.cli import boundary
from cardbox_cli.cli.root import COMPLETING, root
from cardbox_cli.cli.session import Session
from cardbox_cli.cli.standard_streams import open_closed_streams


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `cbx` on `arguments` (default: the command line's); the exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    session = Session()

    return boundary.run(
        lambda: root().main(argv, prog_name="cbx", standalone_mode=False, obj=session), argv, session
    )


def script() -> int:
    """The console script; its exit code. Its completion in a shell runs it, too."""
    open_closed_streams()
    if COMPLETING in os.environ:
        from cardbox_cli.cli.completion.candidates import answer

        return answer(os.environ[COMPLETING])
    code = main()
    import signal  # which has been loaded by now, if at all

    # All is done and said; nothing is left that an interrupt could end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code
