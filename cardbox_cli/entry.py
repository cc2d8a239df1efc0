"""Entry points of the command `cbx`: from Python, from a process, and the exit of the process.

Most commands take less time than the start and end of the interpreter, so both are made cheap here. Imports
are inside functions: an interrupt ends a command in one line, even while modules are being imported.
"""

import atexit
import gc
import os
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

INTERRUPTED = 130

# Imports create some hundred thousand objects, nearly all of which stay. At Python's own threshold, 700, the
# collection of cycles takes a fifth of a short command. Above this one, long commands collect as usual.
_GC_THRESHOLD = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `cbx` on `arguments` (default: the command line's) and return the exit code."""
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
    gc.set_threshold(_GC_THRESHOLD)
    try:
        code = _run_process()
    except KeyboardInterrupt:
        # The interrupt came before the command began; a command reports its own interrupts.
        sys.stderr.write("\ninterrupted\n")
        code = INTERRUPTED
    _end(code)


def _run_process() -> int:
    """Run the command line of this process, or answer a shell's completion; return the exit code."""
    from cardbox_cli.cli.command_table import COMPLETING
    from cardbox_cli.cli.standard_streams import open_closed_streams

    open_closed_streams()
    if COMPLETING in os.environ:
        from cardbox_cli.cli.completion_candidates import answer

        return answer(os.environ[COMPLETING])
    code = main()
    import signal  # already loaded by now if a command needed it

    # All output is written; an interrupt has nothing left to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _end(code: int) -> NoReturn:
    """Flush all output, then end the process with `code`.

    The system frees the memory at once; the interpreter would first free each object, for a seventh of a
    short command's time. If a thread still runs, the interpreter exits normally and waits for it.
    """
    if threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
