"""What keeps the server from reading, for its log: each cause once, however many ask meanwhile."""

import logging
import time
from threading import Lock

from cardbox_cli.errors import CbxError
from cardbox_cli.text import one_line

_LOG = logging.getLogger("cbx.serve")

# Seconds without a cause after which it is another outage; causes that are told apart; characters of a line.
_QUIET = 60.0
_MOST = 32
_LONGEST = 1000


class Outages:
    """May be told by many threads at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seen: dict[str, float] = {}

    def log(self, exc: CbxError) -> None:
        """Log a cause that was not met in the last minute, with what helps."""
        text = one_line(f"{exc.message}: {exc.hint}" if exc.hint else exc.message, _LONGEST)
        if self._begins(text):
            _LOG.error("%s (said once, until it was well for a minute)", text)

    def _begins(self, text: str) -> bool:
        now = time.monotonic()
        with self._lock:
            self._seen = {cause: at for cause, at in self._seen.items() if now - at < _QUIET}
            if text not in self._seen and len(self._seen) >= _MOST:
                return False
            is_new = text not in self._seen
            self._seen[text] = now
        return is_new
