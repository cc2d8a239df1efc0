"""Importing conversations: cards, and one box per conversation, in one transaction.

Idempotent: ids are derived from the project, the conversation's key, the position and the message, so the
same file again writes nothing, a conversation that grew appends its tail, and one whose earlier messages
changed becomes a new box whose parent is the box before it. What a message means is its format's business.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from cardbox_cli.conversations.conversation import Conversation, Entry
from cardbox_cli.conversations.formats import FORMATS, Format
from cardbox_cli.conversations.tool_ids import remapped
from cardbox_cli.errors import BoxConflict, InvalidCard, InvalidConversation
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft, card_text
from cardbox_cli.model.content import TextContent
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
    """A conversation to be written. Keys tell conversations apart, in any project."""

    key: tuple[str, ...]
    parent_key: tuple[str, ...] | None
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
    _check_names(conversation)
    source_format = FORMATS[conversation.format]
    entries = conversation.entries
    drafted = [_drafts(source_format, entry) for entry in entries]
    spelled = [_canonical(entry) for entry in entries]
    key = (*source_format.KEYSPACE, conversation.own_id or str(derived_id(*spelled)))
    scope = (project_id, *key, "remapped") if remap else (project_id, *key)
    drafts = [
        card
        for entry, cards, text in zip(entries, drafted, spelled, strict=True)
        for card in _identified(cards, scope, key, (entry.position, text))
    ]
    if remap:
        drafts = remapped(drafts, scope, source_format.keep_original)
    parent = conversation.parent_id
    return _Incoming(
        key=key,
        parent_key=None if parent is None else (*source_format.KEYSPACE, parent),
        title=conversation.title or _first_words(drafts),
        drafts=drafts,
    )


def _check_names(conversation: Conversation) -> None:
    """Raise InvalidConversation for an id or title that no database can hold."""
    try:
        exact_json.check_storable([conversation.own_id, conversation.title], "id and title")
    except exact_json.Unstorable as exc:
        raise InvalidConversation(f"a conversation's {exc}") from exc


def _drafts(source_format: Format, entry: Entry) -> list[CardDraft]:
    """The cards of an entry. Raises InvalidCard or InvalidConversation naming its place."""
    try:
        exact_json.check_storable(entry.value)
        return source_format.draft(entry)
    except exact_json.Unstorable as exc:
        raise InvalidCard(
            f"{entry.place}: {exc}", hint="remove or replace that value; nothing was imported"
        ) from exc
    except InvalidCard as exc:
        raise InvalidConversation(f"{entry.place}: {exc.message}", hint=exc.hint) from exc


def _canonical(entry: Entry) -> str:
    return exact_json.canonical(exact_json.encode(entry.value)).decode()


def _identified(
    cards: Sequence[CardDraft], scope: Sequence[str], key: Sequence[str], name: Sequence[str]
) -> Iterator[CardDraft]:
    """The cards of one entry with their ids; several get a group, which is the same in every project."""
    group = {"source_group": derived_id(*key, *name).hex} if len(cards) > 1 else {}
    for part, card in enumerate(cards):
        which = (str(part),) if part else ()
        yield msgspec.structs.replace(
            card, card_id=derived_id(*scope, *name, *which).hex, metadata={**group, **card.metadata}
        )


def _first_words(drafts: Sequence[CardDraft]) -> str | None:
    for draft in drafts:
        words = " ".join(card_text(draft.content).split())
        if draft.role == "user" and isinstance(draft.content, TextContent) and words:
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
        box_id = _versioned(project_id, incoming.key, version)
        found = boxes.get_many([box_id]).boxes
        try:
            if not found:
                branched_from = _newest_version(boxes, project_id, incoming.parent_key)
                parents = [box for box in (previous, branched_from) if box is not None]
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


def _newest_version(boxes: BoxStore, project_id: str, key: Sequence[str] | None) -> str | None:
    """The last box that a conversation became, if it was imported."""
    newest, version = None, 1
    while key is not None and boxes.get_many([_versioned(project_id, key, version)]).boxes:
        newest, version = _versioned(project_id, key, version), version + 1
    return newest


def _versioned(project_id: str, key: Sequence[str], version: int) -> str:
    return str(derived_id(project_id, *key, "box", str(version)))
