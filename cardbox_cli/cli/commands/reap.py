"""`cbx reap`: one pass over everything that is overdue."""

from typing import TYPE_CHECKING

from cardbox_cli.cli.runtime import runtime
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb

if TYPE_CHECKING:
    from cardbox_cli.execution.recovery.reaping import Reaped


@verb(examples="cbx reap\ncbx --project shop reap -o jsonl")
def command() -> None:
    """Do what is overdue in the project, once. Harmless from many places at the same time.

    Expired leases make their rows due again, or dead after too many tries; a result whose report was lost is
    reported; a passed deadline becomes a timeout report; a turn that is queued on an idle agent is promoted;
    workers are notified again of what none came for.
    """
    from cardbox_cli.execution.recovery.reaping import reap

    with runtime() as run:
        reaped = reap(run)
    output.emit(reaped, table=lambda: _print_text(reaped))


def _print_text(reaped: "Reaped") -> None:
    if not reaped.total:
        output.print_text("nothing was overdue")
        return
    output.facts(
        [
            ("released", ", ".join(reaped.released) or None),
            ("dead", ", ".join(reaped.dead) or None),
            ("timed out", ", ".join(reaped.timed_out) or None),
            ("reported", ", ".join(reaped.reported) or None),
            ("failed", ", ".join(reaped.failed) or None),
            ("promoted", ", ".join(reaped.promoted) or None),
            ("notified", ", ".join(reaped.notified) or None),
            ("trouble", "; ".join(reaped.troubles) or None),
        ]
    )
