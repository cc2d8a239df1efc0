"""How many wrong tokens are answered: a few at once, then one a second, whoever shows them."""

import time
from threading import Lock

_AT_ONCE = 20.0
_EACH_SECOND = 1.0


class Attempts:
    """A bucket of attempts that fills again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left = _AT_ONCE
        self._at = time.monotonic()

    def failed(self) -> bool:
        """Count a failure; False where there have been too many."""
        with self._lock:
            self._fill()
            if self._left < 1:
                return False
            self._left -= 1
            return True

    @property
    def are_spent(self) -> bool:
        """Whether the next failure is one too many."""
        with self._lock:
            self._fill()
            return self._left < 1

    def _fill(self) -> None:
        now = time.monotonic()
        self._left = min(_AT_ONCE, self._left + (now - self._at) * _EACH_SECOND)
        self._at = now
