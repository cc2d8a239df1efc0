"""Waiting for the end of a batch, by looks at its rows, each of which does what is due of it."""

from collections.abc import Callable, Iterator
from time import monotonic, sleep

from cardbox_cli.errors import WaitedTooLong
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.orchestration.batches.manager import catch_up
from cardbox_cli.orchestration.batches.view import Progress, progress_of
from cardbox_cli.text import argument

# Seconds between two looks: at first, and at most.
_SOON, _LATE = 0.05, 1.0


def looks_at(
    runtime: Runtime, batch_id: str, *, timeout: float | None, pause: Callable[[float], object] = sleep
) -> Iterator[Progress]:
    """How far a batch is, look by look, the last when it has ended; before each one, what is due is done.

    Raises NotFound, and WaitedTooLong after `timeout` seconds (None: never). No transaction is open between
    two looks. `pause` waits for so many seconds, or less.
    """
    give_up = None if timeout is None else monotonic() + timeout
    interval = _SOON
    while True:
        catch_up(runtime, batch_id)
        seen = progress_of(runtime, batch_id)
        yield seen
        if not seen.batch.is_running:
            return
        left = _LATE if give_up is None else give_up - monotonic()
        if left <= 0:
            raise WaitedTooLong(
                f"batch {batch_id} has not ended within {timeout:g} s",
                hint=f"it goes on; `cbx batch watch {argument(batch_id)}` watches it",
                details={"batch_id": batch_id, "status": seen.batch.status},
            )
        pause(min(interval, left))
        interval = min(interval * 1.3, _LATE)
