"""Boxes and cards for the read API. Returns the JSON of the database unchanged."""

from collections.abc import Iterable, Sequence

import msgspec

from cardbox_cli.model.boxes import decode_ids
from cardbox_cli.model.exact_json import is_storable_text
from cardbox_cli.model.ids import are_box_ids, canonical_box_id
from cardbox_cli.store.connection.project_store import ProjectStore

_LISTS = msgspec.json.Decoder(list[list[str]])


class ApiViews(ProjectStore):
    def boxes(self, box_ids: Sequence[str]) -> dict[str, str]:
        """Return the id lists of existing boxes as JSON, by the given id, in the order of `box_ids`."""
        canonical = _canonical(box_ids)
        if not canonical:
            return {}
        lists = dict(self._rows("api_boxes", box_ids=_array(set(canonical.values()))))
        if not _contain_only_strings(lists.values()):
            lists = {box_id: _convert_to_strings(ids) for box_id, ids in lists.items()}
        return {text: lists[box_id] for text, box_id in canonical.items() if box_id in lists}

    def cards(self, card_ids: Sequence[str], *, most: int) -> dict[str, str]:
        """Return the JSON of existing cards by id.

        Stops when they have more than `most` bytes in total.
        """
        storable = _storable(card_ids)
        return dict(self._rows("api_cards", card_ids=_array(storable), most=most)) if storable else {}

    def stored_sizes(self, card_ids: Sequence[str]) -> dict[str, int]:
        """Return the number of bytes that these cards take in the database, possibly compressed, by id."""
        storable = _storable(card_ids)
        return dict(self._rows("api_card_sizes", card_ids=_array(storable))) if storable else {}


def _storable(ids: Sequence[str]) -> Sequence[str]:
    """Return those ids that Postgres can store."""
    return ids if is_storable_text("".join(ids)) else [each for each in ids if is_storable_text(each)]


def _canonical(box_ids: Sequence[str]) -> dict[str, str]:
    """Return the canonical form of each valid box id, by the given form."""
    if are_box_ids(box_ids):
        return dict(zip(box_ids, box_ids, strict=True))
    return {text: box_id for text in box_ids if (box_id := canonical_box_id(text)) is not None}


def _array(ids: Iterable[str]) -> str | list[str]:
    """Return the ids as a query parameter: the text of a Postgres array if no id needs escaping, else a list.

    For a list, the driver checks each id for characters to escape, which is as slow as finding 100 rows.
    """
    text = '{"' + '","'.join(listed := list(ids)) + '"}'
    return listed if "\\" in text or text.count('"') != 2 * len(listed) else text


def _contain_only_strings(lists: Iterable[str]) -> bool:
    try:
        _LISTS.decode(f"[{','.join(lists)}]")
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True


def _convert_to_strings(ids: str) -> str:
    """Return a JSON list of ids in which each value is a string. Other programs may write other values."""
    return msgspec.json.encode(decode_ids(ids)).decode()
