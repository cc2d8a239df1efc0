"""What SIGTERM and SIGINT mean to a command that runs models: it is asked to come to its end."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Within, either signal calls `stop`; the numbers of those that came."""
    received: list[int] = []

    def heed(number: int, _: object) -> None:
        received.append(number)
        stop()

    before = {number: signal.signal(number, heed) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
