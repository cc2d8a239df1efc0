"""`cbx reap`: one pass over everything that is overdue."""

from functools import partial

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("reap", "cbx reap", "cbx --project shop reap -o jsonl")
def reap_overdue() -> None:
    """Do what is overdue in the project, once. Harmless from many places at the same time.

    Expired leases make their rows due again, or dead after too many tries; a result whose report was lost is
    reported; a passed deadline becomes a timeout report; a turn that is queued on an idle agent is promoted;
    children of batches are dispatched or stopped, and batches end; workers are notified again of what none
    came for.
    """
    from cardbox_cli.execution.recovery.reaping import reap

    with runtime() as run:
        reaped = reap(run)
    facts = (
        ("released", ", ".join(reaped.released) or None),
        ("dead", ", ".join(reaped.dead) or None),
        ("timed out", ", ".join(reaped.timed_out) or None),
        ("reported", ", ".join(reaped.reported) or None),
        ("failed", ", ".join(reaped.failed) or None),
        ("promoted", ", ".join(reaped.promoted) or None),
        ("dispatched", ", ".join(reaped.dispatched) or None),
        ("stopped", ", ".join(reaped.stopped) or None),
        ("batches ended", ", ".join(reaped.batches) or None),
        ("notified", ", ".join(reaped.notified) or None),
        ("trouble", "; ".join(reaped.troubles) or None),
    )
    nothing = partial(output.print_text, "nothing was overdue")
    output.emit(reaped, table=partial(output.facts, *facts) if reaped.total else nothing)
