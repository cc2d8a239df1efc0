"""`cbx` of a next release, whose files are in the folder that the first argument names.

Imports no other module of the tests: each fork would load that again.
"""

from collections.abc import Sequence
from pathlib import Path

from cardbox_cli.entry import main as cbx
from cardbox_cli.store.migrations import files


def main(arguments: Sequence[str]) -> int:
    """Run the other arguments as a command line of the release."""
    folder, *line = arguments
    files.FOLDER = str(Path(folder, "migrations"))
    files.SCHEMA = Path(folder, "schema.sql")
    return cbx(line)
