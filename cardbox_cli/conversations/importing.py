"""Importing conversations: cards, and one box per conversation, in one transaction.

Idempotent: ids are derived from the project, the conversation's key, the position and the message, so the
same file again writes nothing, a conversation that grew appends its tail, and one whose earlier messages
changed becomes a new box whose parent is the box before it.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from cardbox_cli.conversations import openai
from cardbox_cli.conversations.files import Conversation
from cardbox_cli.conversations.tool_ids import remapped
from cardbox_cli.errors import BoxConflict, InvalidCard, InvalidConversation
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.ids import derived_id, hash_ids
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.database import Database

# Cards per COPY: enough to be fast, few enough to hold in memory.
_BATCH = 5000
_TITLE_LENGTH = 60


class ImportedBox(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one conversation: its box, how many cards it has, how many were new."""

    box_id: str
    title: str | None
    cards: int
    new_cards: int


class _Incoming(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    title: str | None
    drafts: list[CardDraft]

    @property
    def card_ids(self) -> list[str]:
        return [draft.card_id for draft in self.drafts]


def import_conversations(
    database: Database,
    project_id: str,
    conversations: Iterable[Conversation],
    *,
    remap_tool_ids: bool = False,
) -> list[ImportedBox]:
    """Import `conversations`, all or nothing; an answer for each, in order.

    With `remap_tool_ids` tool calls get ids that are unique in the project; export still gives the originals.
    Raises InvalidConversation or InvalidCard naming the place, CardConflict where a database that allows one
    result per tool-call id already has one.
    """
    imported: list[ImportedBox] = []
    incoming = (_incoming(project_id, conversation, remap_tool_ids) for conversation in conversations)
    with database.transaction():
        database.value("lock_import", project_id=project_id)
        for batch in _batches(incoming):
            imported += _write(database, project_id, batch)
    return imported


def _incoming(project_id: str, conversation: Conversation, remap: bool) -> _Incoming:
    messages = conversation.messages
    _canonical([conversation.own_id, conversation.title], conversation.place, "id and title")
    for position, message in enumerate(messages):
        openai.check_message(message, f"{conversation.place}: message {position}")
    spelled = [
        _canonical(message, conversation.place, f"message {index}") for index, message in enumerate(messages)
    ]
    key = conversation.own_id or str(derived_id(*(text.decode() for text in spelled)))
    scope = (project_id, key, "remapped") if remap else (project_id, key)
    drafts = [
        _draft(message, derived_id(*scope, str(position), text.decode()).hex, conversation.place, position)
        for position, (message, text) in enumerate(zip(messages, spelled, strict=True))
    ]
    if remap:
        drafts = remapped(drafts, messages, scope)
    return _Incoming(key=key, title=conversation.title or _first_words(messages), drafts=drafts)


def _canonical(value: object, place: str, part: str) -> bytes:
    try:
        exact_json.check_storable(value)
    except exact_json.Unstorable as exc:
        raise InvalidCard(
            f"{place}: {part}: {exc}", hint="remove or replace that value; nothing was imported"
        ) from exc
    return exact_json.canonical(exact_json.encode(value))


def _draft(message: dict[str, object], card_id: str, place: str, position: int) -> CardDraft:
    try:
        return openai.card_of_message(message, card_id)
    except InvalidCard as exc:
        raise InvalidConversation(f"{place}: message {position}: {exc.message}", hint=exc.hint) from exc


def _first_words(messages: Sequence[dict[str, object]]) -> str | None:
    for message in messages:
        words = " ".join(openai.message_text(message).split())
        if message["role"] == "user" and words:
            return words if len(words) <= _TITLE_LENGTH else words[: _TITLE_LENGTH - 1] + "…"
    return None


def _batches(incoming: Iterable[_Incoming]) -> Iterator[list[_Incoming]]:
    batch: list[_Incoming] = []
    size = 0
    for conversation in incoming:
        batch.append(conversation)
        size += len(conversation.drafts)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write(database: Database, project_id: str, batch: Sequence[_Incoming]) -> list[ImportedBox]:
    labelled = ((label, draft) for label, incoming in enumerate(batch) for draft in incoming.drafts)
    counts = CardStore(database, project_id).add_labelled(labelled)
    boxes = BoxStore(database, project_id)
    return [
        ImportedBox(
            box_id=_box_of(boxes, project_id, incoming),
            title=incoming.title,
            cards=len(incoming.drafts),
            new_cards=counts[label].inserted if label in counts else 0,
        )
        for label, incoming in enumerate(batch)
    ]


def _box_of(boxes: BoxStore, project_id: str, incoming: _Incoming) -> str:
    """The box that now holds the conversation: the version of it that this continues, or a new one."""
    version, previous = 1, None
    contested: set[str] = set()
    card_ids = incoming.card_ids
    while True:
        box_id = str(derived_id(project_id, incoming.key, "box", str(version)))
        found = boxes.get_many([box_id]).boxes
        try:
            if not found:
                parents = [previous] if previous else None
                boxes.create(
                    card_ids, parent_ids=parents, title=incoming.title, box_id=box_id, allow_dangling=True
                )
                return box_id
            stored = found[0].card_ids
            if stored[: len(card_ids)] == card_ids:
                return box_id
            if card_ids[: len(stored)] == stored:
                boxes.replace(box_id, card_ids, if_ids=hash_ids(stored), allow_dangling=True)
                return box_id
        except BoxConflict:
            # Someone wrote this box between our read and our write: look again, but not for ever.
            if box_id in contested:
                raise
            contested.add(box_id)
            continue
        version, previous = version + 1, box_id
