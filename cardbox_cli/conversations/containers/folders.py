"""Folders that are one conversation: a file for each event, as OpenHands writes them.

Its first version names them `events/0.json`, its SDK `events/event-00000-<id>.json`; the folder around is
named after the conversation. Sources: `openhands/storage/locations.py`; in its SDK
`openhands.sdk.conversation.persistence_const`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from cardbox_cli.errors import InvalidInput
from cardbox_cli.files import open_within

EVENTS = "events"
_EVENT = re.compile(r"(?:event-)?(\d+)(?:-[0-9A-Za-z-]+)?\.json")
_BLOCK = 1 << 16


def is_of_events(path: str | Path) -> bool:
    """Whether a folder has events in it, a file for each."""
    folder = Path(path)
    if folder.name != EVENTS:
        return False
    try:
        return any(_EVENT.fullmatch(each.name) for each in folder.iterdir())
    except OSError:  # no folder, or one that may not be read
        return False


def pieces(path: str | Path) -> Iterator[bytes]:
    """The events of a folder as one JSON list, in the order of their numbers.

    Raises InvalidInput naming the file that cannot be read.
    """
    numbered = ((found, each) for each in Path(path).iterdir() if (found := _EVENT.fullmatch(each.name)))
    lead = b"["
    for _, each in sorted((int(found[1]), each) for found, each in numbered):
        yield lead
        try:
            with open_within(each) as file:
                yield from iter(lambda file=file: file.read(_BLOCK), b"")  # type: ignore[misc]
        except OSError as exc:
            raise InvalidInput(
                f"{each} cannot be read: {exc.strerror}", hint="take it out, or check its rights"
            ) from exc
        lead = b",\n"
    yield b"]\n"


def folder_id(name: str) -> str | None:
    """The conversation whose folder of events has this name; None for any other file."""
    path = Path(name)
    return path.parent.name or None if path.name == EVENTS else None
