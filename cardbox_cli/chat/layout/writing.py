"""From values to the files of a chat's folder, and what would be lost where a file is replaced.

Pure: files are handed out as texts by their names below the folder. Writing them is `folders.py`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cardbox_cli.chat.layout import names
from cardbox_cli.chat.layout.reading import ChatFiles, Moved
from cardbox_cli.chat.layout.records import Item, Line, moment_of
from cardbox_cli.model import exact_json

# So many lines a transcript's file may have before the older half of them moves to a file of its own.
MOST_LINES = 1000


def files_of(chat: ChatFiles) -> dict[str, str]:
    """The files that hold a chat, in the order in which a reader beside us misses least."""
    files = {
        names.archive_file(archive.context_id): _document(archive.as_json()) for archive in chat.archives
    }
    if chat.items is not None:
        files[names.INDEX] = _document(_index(chat.items, chat.beside))
    for moved in chat.transcript:
        name = names.HISTORY if moved.number is None else names.rolled(moved.number)
        files[name] = _lines(line.as_json() for line in moved.lines)
    if chat.active is not None:
        files[names.ACTIVE] = _lines(message.as_json() for message in chat.active)
    if chat.memory is not None:
        files[names.MEMORY] = chat.memory
    return files


def rolled_over(files: list[Moved], more: Iterable[Line]) -> list[Moved]:
    """The files of a transcript after `more` lines: above the most, the older half moves, time and again."""
    behind = [each for each in files if each.number is not None]
    lines = [line for each in files if each.number is None for line in each.lines]
    last = behind[-1].number or 0 if behind else 0
    for line in more:
        lines.append(line)
        if len(lines) > MOST_LINES:
            last, half = last + 1, len(lines) // 2
            behind.append(Moved(last, lines[:half]))
            lines = lines[half:]
    return [*behind, Moved(None, lines)]


def is_same(name: str, there: bytes, text: str) -> bool:
    """Whether a file says what `text` says, however its JSON is spelled."""
    if name.endswith(".jsonl"):
        return _values(there) == _values(text.encode())
    return there == text.encode() or (
        name.endswith(".json") and _canonical(there) == _canonical(text.encode())
    )


def lost(name: str, there: bytes, text: str, *, all_files: Mapping[str, str]) -> str | None:
    """What is lost where `text` takes the place of a file that says something else; None if nothing is.

    To be read after its name. A line of a transcript may as well stand in another file of those written.
    """
    if name == names.INDEX:
        gone = _missing(_items(there), _items(text.encode()))
        return f"lists {gone} that this chat does not have" if gone else None
    if not name.startswith(("conversations/", names.ACTIVE)):
        return "is another"
    kept = (each for file, each in all_files.items() if _is_alike(file, name))
    gone = _missing(_values(there), (value for each in kept for value in _values(each.encode())))
    return f"has {gone} that this chat does not have" if gone else None


def _is_alike(file: str, name: str) -> bool:
    return file == name or (name.startswith("conversations/") and file.startswith("conversations/"))


def _missing(found: Iterable[bytes], kept: Iterable[bytes]) -> str:
    """How many of `found` are not among `kept`, in words; empty where all are."""
    gone = (Counter(found) - Counter(kept)).total()
    return f"{gone} {'entry' if gone == 1 else 'entries'}" if gone else ""


def _values(data: bytes) -> list[bytes]:
    """The lines of a file that are not blank, in the one form of their JSON; what is none as it stands."""
    return [_canonical(line) for line in data.split(b"\n") if line.strip()]


def _items(data: bytes) -> list[bytes]:
    """The items of an index, or all of a file that is none."""
    try:
        listed = msgspec.json.decode(data, type=_Listed).items
    except (msgspec.DecodeError, ValueError, RecursionError):
        return [data]
    return [_canonical(bytes(item)) for item in listed]


class _Listed(msgspec.Struct):
    items: list[msgspec.Raw]


def _canonical(line: bytes) -> bytes:
    """The one form of JSON; what is none, and what nothing of ours says, as it stands: `1e999999999`."""
    try:
        exact_json.check_storable(exact_json.decode(line))
        return exact_json.canonical(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return line


def _index(items: Iterable[Item], beside: Mapping[str, Any]) -> dict[str, Any]:
    """The index, newest first."""
    newest = sorted(items, key=lambda item: (moment_of(item.archived_at), item.context_id), reverse=True)
    return {"v": 1, **beside, "items": [item.as_json() for item in newest]}


def _lines(values: Iterable[dict[str, Any]]) -> str:
    return "".join(exact_json.encode(value).decode() + "\n" for value in values)


def _document(value: dict[str, Any]) -> str:
    return msgspec.json.format(exact_json.encode(value).decode(), indent=2) + "\n"
