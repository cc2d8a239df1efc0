"""Boxes and cards as the read API gives them: JSON that the database has written, passed on as it is."""

from collections.abc import Iterable, Sequence

import msgspec

from cardbox_cli.model.boxes import decode_ids
from cardbox_cli.model.exact_json import is_storable_text
from cardbox_cli.model.ids import are_box_ids, as_box_id
from cardbox_cli.store.connection.project_store import ProjectStore

_LISTS = msgspec.json.Decoder(list[list[str]])


class ApiViews(ProjectStore):
    """The boxes and cards of one project."""

    def boxes(self, box_ids: Sequence[str]) -> dict[str, str]:
        """The lists of card ids, as JSON, of those of these ids that are boxes, in the order of these."""
        canonical = _canonical(box_ids)
        if not canonical:
            return {}
        found = dict(self._rows("api_boxes", box_ids=_array(set(canonical.values()))))
        if not _are_texts(found.values()):
            found = {box_id: _as_texts(ids) for box_id, ids in found.items()}
        return {given: found[box_id] for given, box_id in canonical.items() if box_id in found}

    def cards(self, card_ids: Sequence[str], *, most: int) -> dict[str, str]:
        """The JSON of those of these ids that are cards, by id.

        Once they are more than `most` bytes together, others are left out.
        """
        known = _storable(card_ids)
        return dict(self._rows("api_cards", card_ids=_array(known), most=most)) if known else {}

    def stored_sizes(self, card_ids: Sequence[str]) -> dict[str, int]:
        """How many bytes the cards of these ids take in the database, compressed as they may be, by id."""
        known = _storable(card_ids)
        return dict(self._rows("api_card_sizes", card_ids=_array(known))) if known else {}


def _storable(ids: Sequence[str]) -> Sequence[str]:
    """Those that a row can have as its id."""
    return ids if is_storable_text("".join(ids)) else [each for each in ids if is_storable_text(each)]


def _canonical(box_ids: Sequence[str]) -> dict[str, str]:
    """The canonical form of those that are ids of boxes."""
    if are_box_ids(box_ids):
        return dict(zip(box_ids, box_ids, strict=True))
    return {given: box_id for given in box_ids if (box_id := as_box_id(given)) is not None}


def _array(ids: Iterable[str]) -> str | list[str]:
    """The ids as a parameter: where nothing in them must be escaped, as Postgres spells an array.

    (The driver looks at each for what it must escape, which takes as long as to find a hundred rows.)
    """
    text = '{"' + '","'.join(listed := list(ids)) + '"}'
    return listed if "\\" in text or text.count('"') != 2 * len(listed) else text


def _are_texts(lists: Iterable[str]) -> bool:
    """Whether lists, which are JSON, hold nothing but texts."""
    try:
        _LISTS.decode(f"[{','.join(lists)}]")
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True


def _as_texts(ids: str) -> str:
    """A list of ids as JSON: what is no text in it, as others may write, is the text of its JSON."""
    return msgspec.json.encode(decode_ids(ids)).decode()
