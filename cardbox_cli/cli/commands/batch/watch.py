"""`cbx batch watch`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.options.shared_options import BatchId, EndTimeout
from cardbox_cli.cli.terminal.batch_report import await_batch, resolved_own
from cardbox_cli.cli.verb import verb


@verb(
    "watch",
    "cbx batch watch 5e1f0a27",
    "cbx batch watch 5e1f0a27 --join-box -o id",
    "cbx batch watch 5e1f0a27 -o jsonl | jq -r '\"\\(.task_index) \\(.state)\"'",
)
def watch_batch(
    batch: BatchId,
    timeout: EndTimeout = None,
    join_box: Annotated[
        bool, Option("--join-box", help="Make a box of what the children delivered, in order.")
    ] = False,
) -> None:
    """Watch a batch until it has ended, and print its results; what is due of it meanwhile is done.

    Exit 8 unless in success, 124 when that took too long. Ctrl-C leaves the batch running.
    """
    with runtime() as run:
        await_batch(run, resolved_own(run, batch), timeout=timeout, joined=join_box)
