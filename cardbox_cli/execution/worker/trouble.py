"""Why a worker cannot work, as others may read it: one line, bounded, without what looks like a password."""

import re

LONGEST = 400

# Each takes time in proportion to the text, whatever stands in it.
_SECRET = re.compile(
    r"(://[^\s:/@]{0,256}:)[^\s@]{1,512}(?=@)|(\bpassword\s{0,8}=\s{0,8})('[^']{0,512}'|\S+)", re.IGNORECASE
)


def shown_trouble(message: str | None) -> str | None:
    """The message as it is kept; None for none."""
    if not message:
        return None
    line = " ".join(_SECRET.sub(r"\1\2***", message).split())
    line = line.replace("\x00", "")
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
