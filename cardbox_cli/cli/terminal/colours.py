"""The few colours that are shown on a terminal that has them."""

import sys

from cardbox_cli.cli.session import session_or_none
from cardbox_cli.settings import NO_COLOR, TERM

_CODES = {"bold": 1, "red": 31, "green": 32, "cyan": 36}


def coloured() -> bool:
    """Whether colours are shown here: as `--color` says, else on terminals that have them."""
    here = session_or_none()
    if here is not None and here.color != "auto":
        return here.color == "always"
    return sys.stdout.isatty() and not NO_COLOR.text() and TERM.text() != "dumb"


def painted(colour: str, text: str) -> str:
    """`text` in a colour (red, green, cyan, bold, or "" for none), where colours are shown."""
    if not colour or not coloured():
        return text
    # Line by line: a pager forgets the colour at the end of one.
    return "\n".join(f"\x1b[{_CODES[colour]}m{line}\x1b[0m" if line else "" for line in text.split("\n"))
