"""The three standard streams: a process may be started without them, and notes for people go to stderr."""

import os
import sys
from io import TextIOWrapper

from cardbox_cli.text import one_entry, printable


def open_closed_streams() -> None:
    """Put something in the place of each closed stream, before a file or a socket gets its descriptor.

    Who reads the input learns it from `input_files.standard_input`; who writes an answer fails with EBADF,
    which `boundary` reports. What is written to a closed stderr goes nowhere.
    """
    for number, (name, access) in enumerate(
        (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    ):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, access)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            # Opened to be written, so that the input says that it is not readable.
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def escape_unencodable() -> None:
    """Let both outputs write a character that their encoding lacks as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def announce(message: str) -> None:
    """Print a note for the person on stderr, after the data so far.

    Nothing in it acts on a terminal, and no further line of it passes for another message.
    """
    sys.stdout.flush()
    print(printable(one_entry(message)), file=sys.stderr, flush=True)
