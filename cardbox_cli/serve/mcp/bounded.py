"""Answers that fit into the context of a model: what is too long is cut, and says what is left out.

A value shares its room among its parts: short ones stay whole, so that ids and states survive beside a text
of any length. Of texts and lists beginning and end are kept, for that is where tasks and failures stand.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cardbox_cli.model import exact_json

MOST = 40_000
"""Bytes of an answer, as JSON."""

# Bytes that a part has at least, or it is left out; ids are shorter.
_LEAST = 160
# Levels that are cut part by part; what is deeper is cut as the text of its JSON.
_LEVELS = 24
_MARK = 48


class Bounded(NamedTuple):
    """The JSON of an answer, and how many bytes it would have had if it has been cut."""

    json: str
    whole: int | None


def bounded(value: Any, most: int = MOST) -> Bounded:
    """The JSON of a value, of at most so many bytes: valid, whatever had to be cut."""
    encoded = exact_json.encode(value)
    if len(encoded) <= most:
        return Bounded(encoded.decode(), None)
    cut = _cut(exact_json.decode_stored(encoded), most, _LEVELS)
    return Bounded(exact_json.encode(cut).decode(), len(encoded))


def cut_text(text: str, room: int) -> str:
    """The beginning and the end of a text that as JSON is longer than so many bytes."""
    size = _size(text)
    if size <= room:
        return text
    kept = max(room - _MARK, 0) * len(text) // size
    while True:
        end = kept // 3
        shown = f"{text[: kept - end]} … ({len(text) - kept} more characters) … {text[len(text) - end :]}"
        if kept == 0 or _size(shown) <= room:
            return shown
        # What is kept takes more bytes than the text does on an average.
        kept = kept * 3 // 4


def _size(value: Any) -> int:
    return len(exact_json.encode(value))


def _cut(value: Any, room: int, levels: int) -> Any:
    if _size(value) <= room:
        return value
    if isinstance(value, str):
        return cut_text(value, room)
    if levels and isinstance(value, list):
        return _cut_list(value, room, levels)
    if levels and isinstance(value, dict):
        return _cut_object(value, room, levels)
    return cut_text(exact_json.encode(value).decode(), room)


def _cut_list(items: list[Any], room: int, levels: int) -> list[Any]:
    sizes = [_size(each) + 1 for each in items]
    first, last = _kept(sizes, room - _MARK)
    places = [*range(first), *range(len(items) - last, len(items))]
    share = _share([sizes[place] for place in places], room - _MARK)
    kept = [_cut(items[place], share - 1, levels - 1) for place in places]
    left = len(items) - len(places)
    return [*kept[:first], f"… ({left} more) …", *kept[first:]] if left else kept


def _cut_object(parts: dict[str, Any], room: int, levels: int) -> dict[str, Any]:
    named = [(cut_text(key, _LEAST // 2), each) for key, each in parts.items()]
    sizes = [_size(key) + _size(each) + 2 for key, each in named]
    first, last = _kept(sizes, room - _MARK)
    named = [*named[:first], *named[len(named) - last :]]
    share = _share([*sizes[:first], *sizes[len(sizes) - last :]], room - _MARK)
    kept: dict[str, Any] = {}
    for key, each in named:
        kept.setdefault(key, _cut(each, share - _size(key) - 2, levels - 1))
    left = len(parts) - len(kept)
    return {**kept, "…": f"({left} more)"} if left else kept


def _kept(sizes: Sequence[int], room: int) -> tuple[int, int]:
    """How many parts from the beginning and from the end have room, if long ones are cut to the least."""
    first, last = 0, 0
    while first + last < len(sizes):
        size = min(sizes[first] if first <= last else sizes[-1 - last], _LEAST)
        if size > room:
            break
        room -= size
        first, last = (first + 1, last) if first <= last else (first, last + 1)
    return first, last


def _share(sizes: Sequence[int], room: int) -> int:
    """What each part may take, so that together they take no more than the room."""
    share = room
    for done, size in enumerate(ordered := sorted(sizes)):
        share = room // (len(ordered) - done)
        if size > share:
            break
        room -= size
    return share
