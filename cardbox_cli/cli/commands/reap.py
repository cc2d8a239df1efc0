"""`cbx reap`: runs overdue housekeeping once."""

from functools import partial

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("reap", "cbx reap", "cbx --project shop reap -o jsonl")
def reap_overdue() -> None:
    """Run overdue housekeeping of the project once, for example from cron. Concurrent runs are safe.

    \b
    - Release rows with expired leases, or mark them dead after too many tries.
    - Report tool results whose report was lost, and report passed deadlines as timeouts.
    - Promote turns that are queued on idle agents.
    - Dispatch or stop children of batches, and end batches.
    - Notify workers of unclaimed rows.
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
