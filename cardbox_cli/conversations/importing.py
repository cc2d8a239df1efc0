"""Importing conversations: cards, and one box per conversation, in one transaction.

Idempotent, since all ids are derived (`drafting`): the same file again writes nothing, a conversation that
grew appends its tail, and one whose earlier messages changed becomes a new box whose parent is the old one.
"""

from collections.abc import Iterable, Mapping

import msgspec

from cardbox_cli.conversations.conversation import Conversation
from cardbox_cli.conversations.drafting import LeftOut, Reading
from cardbox_cli.store.cards import CardStore, Counts
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.imports import ImportStore, Wanted


class ImportedBox(msgspec.Struct, frozen=True):
    """What became of one conversation: its box, how many cards it has, how many were new.

    `index` is its number in its file, from 0, `place` where it stands there.
    """

    index: int
    place: str
    box_id: str
    title: str | None
    cards: int
    new_cards: int


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did: a box for each conversation in order, and the last card of the last one.

    `replaced_characters` counts the bad ones that it replaced; what is `left_out` makes no box.
    """

    boxes: list[ImportedBox]
    last_card_id: str | None
    replaced_characters: int
    left_out: LeftOut = LeftOut()


def import_conversations(
    database: Database,
    project_id: str,
    conversations: Iterable[Conversation],
    *,
    remap_tool_ids: bool = False,
    replace_bad_text: bool = False,
    turn: Mapping[str, str] = {},
    only: int | None = None,
) -> Imported:
    """Import `conversations`, all or nothing, one entry of them in memory at a time; `only` that of an index.

    With `remap_tool_ids` tool calls get ids that are unique in the project; export still gives the originals.
    With `replace_bad_text` NUL characters and lone surrogates, which no database can hold, become U+FFFD.
    `turn` is the metadata that names the turn whose cards they are, if one imports: they are none of what
    others imported.

    Raises InvalidConversation or InvalidCard naming the place, CardConflict where a database that allows one
    result per tool-call id already has one.
    """
    with database.transaction():
        store = ImportStore(database, project_id)
        store.begin()
        reading = Reading(
            project_id, remap_tool_ids=remap_tool_ids, replace_bad_text=replace_bad_text, turn=turn, only=only
        )
        counts = store.add(reading.labelled_drafts(conversations))
        placed = store.place(reading.wanted)
    CardStore(database, project_id).refresh_statistics(sum(each.inserted for each in counts.values()))
    boxes = [
        _imported_box(each, reading.places[each.label], placed[each.label], counts) for each in reading.wanted
    ]
    return Imported(
        boxes=boxes,
        last_card_id=reading.last_card_id,
        replaced_characters=reading.replaced_characters,
        left_out=reading.left_out,
    )


def _imported_box(conversation: Wanted, place: str, box_id: str, counts: Mapping[int, Counts]) -> ImportedBox:
    written = conversation.label if conversation.same_as is None else conversation.same_as
    count = counts.get(written, Counts(0, 0))
    new = count.inserted if conversation.same_as is None else 0
    return ImportedBox(conversation.label, place, box_id, conversation.title, count.total, new)
