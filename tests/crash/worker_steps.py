"""What a worker does between two commands, as a process that the harness can kill: `main` in place of `cbx`.

Its arguments are the owner and the id of a claimed row: it finds out what the row asks for.
"""

import os
from collections.abc import Sequence

from cardbox_cli.errors import CbxError
from cardbox_cli.execution.queue.claims import begin
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.store.connection.database import Database


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    owner, inbox_id = arguments
    with Database.open() as database:
        runtime = Runtime(database, os.environ["CBX_PROJECT"])
        try:
            begin(runtime, runtime.inbox.get(inbox_id), owner=owner)
        except CbxError as exc:
            return exc.exit_code
    return 0
