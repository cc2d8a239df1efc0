"""Boxes and cards as the read API gives them: JSON that the database has written, passed on as it is."""

from collections.abc import Sequence

import msgspec

from cardbox_cli.model.boxes import decode_ids
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.store.connection.project_store import ProjectStore


class ApiViews(ProjectStore):
    """The boxes and cards of one project."""

    def boxes(self, box_ids: Sequence[str]) -> dict[str, str]:
        """The lists of card ids, as JSON, of those of these ids that are boxes, each by its id as given."""
        canonical = {given: box_id for given in box_ids if (box_id := as_box_id(given)) is not None}
        rows = dict(self._rows("api_boxes", box_ids=list(set(canonical.values())))) if canonical else {}
        return {given: _texts(rows[box_id]) for given, box_id in canonical.items() if box_id in rows}

    def cards(self, card_ids: Sequence[str]) -> dict[str, str]:
        """The JSON of those of these ids that are cards, by id."""
        return dict(self._rows("api_cards", card_ids=list(card_ids))) if card_ids else {}


def _texts(ids: str) -> str:
    """A list of ids as JSON; what is no text in it, as others may write, is the text of its JSON."""
    try:
        msgspec.json.decode(ids, type=list[str])
    except (msgspec.DecodeError, UnicodeError):
        return msgspec.json.encode(decode_ids(ids)).decode()
    return ids
