"""Where the process of a command `cbx` begins and ends.

Most commands are shorter than the interpreter's own beginning and end, so both are made cheap here, once for
all of them. An interrupt ends a command in one line, whatever is still being imported.
"""

import atexit
import gc
import os
import sys
import threading
from typing import NoReturn

INTERRUPTED = 130

# Imports make some hundred thousand objects, nearly all of which stay: looking through them for cycles at
# Python's own threshold, 700, takes a fifth of a short command. Above it, long ones collect as ever.
_COLLECT_ABOVE = 100_000


def script() -> NoReturn:
    """The console script."""
    gc.set_threshold(_COLLECT_ABOVE)
    try:
        from cardbox_cli.cli.main import script as command

        code = command()
    except KeyboardInterrupt:
        # Before the command itself began; it reports its own.
        sys.stderr.write("\ninterrupted\n")
        code = INTERRUPTED
    _end(code)


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
