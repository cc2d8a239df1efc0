"""Why a worker cannot work, as others may read it: one line, bounded, without what looks like a secret."""

from cardbox_cli.execution.worker.redaction import redacted

LONGEST = 400


def shown_trouble(message: str | None) -> str | None:
    """The message as it is kept; None for none."""
    if not message:
        return None
    line = " ".join(redacted(message).split()).replace("\x00", "")
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
