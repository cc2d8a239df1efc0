"""The way into the command `cbx`: from Python, from a process, and out of the process again.

Most commands are shorter than the interpreter's own beginning and end, so both are made cheap here, once for
all of them. What is imported here is imported within functions: an interrupt ends a command in one line, even
while modules are being imported.
"""

import atexit
import gc
import os
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

INTERRUPTED = 130

# Imports make some hundred thousand objects, nearly all of which stay: looking through them for cycles at
# Python's own threshold, 700, takes a fifth of a short command. Above it, long ones collect as ever.
_COLLECT_ABOVE = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `cbx` on `arguments` (default: the command line's); the exit code."""
    from cardbox_cli.cli import boundary
    from cardbox_cli.cli.command_table import root
    from cardbox_cli.cli.session import Session
    from cardbox_cli.cli.standard_streams import escape_unencodable

    argv = list(sys.argv[1:] if arguments is None else arguments)
    escape_unencodable()
    session = Session()
    return boundary.run(
        lambda: root().main(argv, prog_name="cbx", standalone_mode=False, obj=session), argv, session
    )


def script() -> NoReturn:
    """The console script."""
    gc.set_threshold(_COLLECT_ABOVE)
    try:
        code = _run_process()
    except KeyboardInterrupt:
        # Before the command itself began; it reports its own.
        sys.stderr.write("\ninterrupted\n")
        code = INTERRUPTED
    _end(code)


def _run_process() -> int:
    """Run the command line of this process, or answer the completion in a shell; the exit code."""
    from cardbox_cli.cli.command_table import COMPLETING
    from cardbox_cli.cli.standard_streams import open_closed_streams

    open_closed_streams()
    if COMPLETING in os.environ:
        from cardbox_cli.cli.completion_candidates import answer

        return answer(os.environ[COMPLETING])
    code = main()
    import signal  # which has been loaded by now, if at all

    # All is done and said; nothing is left that an interrupt could end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _end(code: int) -> NoReturn:
    """End the process, with `code`, once all is written that was to be.

    The system takes back the memory at once; the interpreter would first free each object by itself, for a
    seventh of a short command's time. It does so where a thread is still at work, which it waits for.
    """
    if threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
