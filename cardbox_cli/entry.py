"""Where the command `cbx` begins: an interrupt ends it in one line, whatever is still being imported."""

import sys

INTERRUPTED = 130


def script() -> None:
    """The console script."""
    try:
        from cardbox_cli.cli.main import script as command

        command()
    except KeyboardInterrupt:
        # Before the command itself began; it reports its own.
        sys.stderr.write("\ninterrupted\n")
        sys.exit(INTERRUPTED)
