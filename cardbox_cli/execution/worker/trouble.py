"""What troubles a worker, in words: why it cannot work, as others may read it, which is one line, bounded and
without what looks like a secret; and what is said once, however often it comes."""

from collections.abc import Callable
from threading import Lock

from cardbox_cli.execution.worker.redaction import redacted

LONGEST = 400


def shown_trouble(message: str | None) -> str | None:
    """The message as it is kept; None for none."""
    if not message:
        return None
    line = " ".join(redacted(message).split()).replace("\x00", "")
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


class Once:
    """Tells each text once, from whatever thread."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told: set[str] = set()
        self._lock = Lock()

    def __call__(self, text: str) -> None:
        with self._lock:
            is_new = text not in self._told
            self._told.add(text)
        if is_new:
            self._tell(text)
