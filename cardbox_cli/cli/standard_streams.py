"""Replaces closed standard streams, and prints notes for people to stderr."""

import os
import sys
from io import TextIOWrapper

from cardbox_cli.text.escaping import escape_invisible, indent_margin


def open_closed_streams() -> None:
    """Replace each closed stream, before a file or a socket gets its descriptor.

    `input_files.standard_input` reports a closed stdin. Writing to a closed stdout fails with EBADF, which
    `boundary` reports. Output to a closed stderr is lost.
    """
    for number, (name, access) in enumerate(
        (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    ):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, access)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            # The stream is opened for writing, so that reading from stdin fails.
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def escape_unencodable() -> None:
    """Make stdout and stderr escape characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def announce(message: str) -> None:
    """Print a note on stderr, after the data so far. It is escaped and indented: it cannot fake a message."""
    sys.stdout.flush()
    print(escape_invisible(indent_margin(message)), file=sys.stderr, flush=True)
