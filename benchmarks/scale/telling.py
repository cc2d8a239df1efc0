"""What is told on stderr while databases are filled."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


def tell(message: str) -> None:
    """One line."""
    print(message, file=sys.stderr, flush=True)


@contextmanager
def timed(done: str) -> Iterator[None]:
    """Tell what has been done, and in how many seconds."""
    start = perf_counter()
    yield
    tell(f"{done} in {perf_counter() - start:.1f} s")
