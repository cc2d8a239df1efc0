"""Import of conversations as cards, with one box per conversation, in one transaction.

Imports are idempotent: all ids are derived (`conversation_cards`). The same file again writes nothing. A
conversation that grew appends its tail. One whose earlier messages changed becomes a new box, whose parent is
the old one.
"""

from collections.abc import Iterable, Mapping

import msgspec

from cardbox_cli.conversations.conversation import Conversation
from cardbox_cli.conversations.conversation_cards import ConversationPass, SkippedConversations
from cardbox_cli.store.cards import CardStore, WriteCounts
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.imports import ImportedConversation, ImportStore


class ImportedBox(msgspec.Struct, frozen=True):
    """The box of one conversation, with its number of cards and of new ones.

    `index` is the conversation's number in its file, from 0, and `place` its place there.
    """

    index: int
    place: str
    box_id: str
    title: str | None
    cards: int
    new_cards: int


class ConversationImport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an import: a box for each conversation in order, and the last card of the last one.

    `replaced_characters` counts replaced bad characters. Conversations that were `left_out` have no box.
    """

    boxes: list[ImportedBox]
    last_card_id: str | None
    replaced_characters: int
    left_out: SkippedConversations = SkippedConversations()


def import_conversations(
    database: Database,
    project_id: str,
    conversations: Iterable[Conversation],
    *,
    remap_tool_ids: bool = False,
    replace_bad_text: bool = False,
    turn: Mapping[str, str] = {},
    only: int | None = None,
) -> ConversationImport:
    """Import all `conversations`, or none on an error. If `only` is given, import the one of that index.

    One entry is in memory at a time. With `remap_tool_ids`, tool calls get ids that are unique in the
    project, and export restores the originals. With `replace_bad_text`, NUL characters and lone surrogates,
    which Postgres cannot store, become U+FFFD. `turn` is the metadata of the turn that imports, if any: its
    cards are separate from those of other imports.

    Raises InvalidConversation or InvalidCard naming the place, and CardConflict if the database allows one
    result per tool-call id and already has it.
    """
    with database.transaction():
        store = ImportStore(database, project_id)
        store.begin()
        reading = ConversationPass(
            project_id, remap_tool_ids=remap_tool_ids, replace_bad_text=replace_bad_text, turn=turn, only=only
        )
        counts = store.add(reading.labelled_drafts(conversations))
        box_ids = store.assign_boxes(reading.imported)
    CardStore(database, project_id).refresh_statistics(sum(each.inserted for each in counts.values()))
    return ConversationImport(
        boxes=[
            _imported_box(each, reading.places[each.label], box_ids[each.label], counts)
            for each in reading.imported
        ],
        last_card_id=reading.last_card_id,
        replaced_characters=reading.replaced_characters,
        left_out=reading.left_out,
    )


def _imported_box(
    conversation: ImportedConversation, place: str, box_id: str, counts: Mapping[int, WriteCounts]
) -> ImportedBox:
    written = conversation.label if conversation.same_as is None else conversation.same_as
    count = counts.get(written, WriteCounts(0, 0))
    new = count.inserted if conversation.same_as is None else 0
    return ImportedBox(conversation.label, place, box_id, conversation.title, count.total, new)
