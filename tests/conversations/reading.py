"""Texts as the files that importing reads."""

import os
from tempfile import mkstemp
from typing import Any

from cardbox_cli.context.request import RequestEntry
from cardbox_cli.conversations.conversation import Conversation
from cardbox_cli.conversations.conversation_cards import ConversationPass
from cardbox_cli.conversations.json_documents import WINDOW, JsonDocuments, JsonSource
from cardbox_cli.limits import VALUE_SIZE
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import draft_as_card


class _File:
    """A file without a name, open for as long as it is referred to."""

    def __init__(self, data: bytes) -> None:
        self._number, name = mkstemp()
        os.unlink(name)
        os.write(self._number, data)

    def fileno(self) -> int:
        return self._number

    def __del__(self) -> None:
        os.close(self._number)


def documents_in(
    text: str | bytes, name: str = "f", *, window: int = WINDOW, most: int = VALUE_SIZE.value << 20
) -> JsonDocuments:
    """The documents of a file with this text."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    file: Any = _File(data)
    return JsonDocuments(JsonSource(file, name, window=window, most=most))


def entries_of(conversation: Conversation) -> list[RequestEntry]:
    """The cards that importing a conversation makes, what is kept of its request among them, in a box."""
    reading = ConversationPass("p", remap_tool_ids=False, replace_bad_text=False)
    cards = [draft_as_card(draft, "p") for _, draft in reading.labelled_drafts([conversation])]
    slots = [Slot(place, card.card_id, card, "present") for place, card in enumerate(cards)]
    return [RequestEntry(slot=slot, box_id="b") for slot in slots]
