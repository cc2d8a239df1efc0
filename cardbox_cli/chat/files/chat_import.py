"""Import of chats from the `.ship` layout, one transaction for each chat.

Entries that a chat has already are not imported again, in whichever file they are. An active context that
differs is preserved, unless `replace` is set; cbx then archives it first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET

from cardbox_cli.chat.contexts import archive_active, context_slots, empty_head, new_archive, store_archive
from cardbox_cli.chat.files.layout_files import ChatFiles
from cardbox_cli.chat.files.record_cards import (
    draft_line,
    draft_message,
    layout_of,
    line_of_card,
    message_of_card,
    record_of,
    restore_checkpoint,
)
from cardbox_cli.chat.files.records import ArchiveRecord, MessageRecord, TranscriptLine, parse_stamp
from cardbox_cli.chat.persona_texts import find_memory, list_personas, set_memory, set_persona
from cardbox_cli.errors import NotAccepted
from cardbox_cli.execution.requests.turn_requests import present_cards
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.chats import Chat, check_key, entry_id
from cardbox_cli.model.execution.turns import new_id
from cardbox_cli.model.ids import derived_id
from cardbox_cli.store.chats import ChatStores

# The outcome for an active context or a text. "absent": there is no file; "unchanged": it equals the file;
# "imported": it was replaced by the file; "ahead": it continues the file; "kept": it differs and stays.
ImportOutcome = Literal["absent", "unchanged", "imported", "ahead", "kept"]

_BATCH_SIZE = 5000


class ImportedChat(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an import: the numbers of lines, messages and archives in the files, and of new ones.

    `differing` are archived contexts that differ from the chat's, which are preserved.
    """

    chat_key: str
    entries: int
    new_entries: int
    context: ImportOutcome
    messages: int
    archives: int
    new_archives: int
    differing: list[str]
    memory: ImportOutcome


def import_persona(
    stores: ChatStores, name: str, text: str | None, *, replace: bool = False
) -> ImportOutcome:
    """Import a persona's text into the project. Raises InvalidInput for an invalid name."""
    with stores.transaction():
        texts = {(each.name or "").casefold(): each.text for each in list_personas(stores)}
        outcome = _text_outcome(texts.get(name.casefold()), text, replace=replace)
        if outcome == "imported" and text is not None:
            set_persona(stores, name, text)
    return outcome


def _text_outcome(current: str | None, text: str | None, *, replace: bool) -> ImportOutcome:
    if text is None:
        return "absent"
    if current == text:
        return "unchanged"
    return "imported" if current is None or replace else "kept"


def import_chat(stores: ChatStores, files: ChatFiles, *, replace: bool = False) -> ImportedChat:
    """Import the files of a chat into the project, in one transaction.

    Raises InvalidInput for an invalid chat key, NotAccepted during a run of the chat.
    """
    check_key(files.chat_key)
    with stores.transaction():
        chat = stores.chats.lock_or_create(files.chat_key)
        _check_idle(stores, chat)
        importer = _Importer(stores, chat, files)
        new_entries = importer.transcript()
        new_archives, differing = importer.archives()
        context = importer.context(replace=replace)
        memory = importer.memory(replace=replace)
        importer.write()
    stores.cards.refresh_statistics(new_entries + len(files.active or []))
    return ImportedChat(
        chat_key=files.chat_key,
        entries=sum(len(file.lines) for file in files.transcript),
        new_entries=new_entries,
        context=context,
        messages=len(files.active or []),
        archives=len(files.archives),
        new_archives=new_archives,
        differing=differing,
        memory=memory,
    )


class _Importer:
    """The import of one chat, whose head is locked."""

    def __init__(self, stores: ChatStores, chat: Chat, files: ChatFiles) -> None:
        self._stores = stores
        self._chat = self._before = chat
        self._files = files
        self._now = stores.database.now()

    def write(self) -> None:
        if self._chat != self._before:
            self._stores.chats.write(self._chat, self._now)

    # --- the transcript

    def transcript(self) -> int:
        """Append the lines that the chat does not have yet, and return their number."""
        begin = self._chat.entries
        drafts = list(self._new_lines())
        for start in range(0, len(drafts), _BATCH_SIZE):
            self._chat = self._stores.chats.append(self._chat, drafts[start : start + _BATCH_SIZE])
        answers = [begin + place for place, draft in enumerate(drafts, 1) if draft.role == "assistant"]
        answered = max([self._chat.answered, *answers])
        self._chat = msgspec.structs.replace(self._chat, answered=answered)
        return self._chat.entries - begin

    def _new_lines(self) -> Iterator[CardDraft]:
        """Yield the entries that the chat does not have yet, by their content and by the platform's id."""
        stores, chat_key = self._stores, self._chat.chat_key
        stored: Counter[bytes] = Counter()
        texts: dict[str, str | None] = {}
        for entry in stores.chats.stream_entries(self._chat):
            texts[entry.card_id] = None if entry.card is None else entry.text
            if entry.card is not None:
                stored[_canonical(line_of_card(chat_key, entry.card))] += 1
        so_far: Counter[bytes] = Counter()
        lines = ((file.number, line) for file in self._files.transcript for line in file.lines)
        for number, line in lines:
            canonical = _canonical(line)
            so_far[canonical] += 1
            if so_far[canonical] <= stored[canonical]:
                continue
            delivered = None
            if line.message_id is not UNSET and line.message_id:  # the id of a platform's delivery
                delivered = entry_id(stores.project_id, chat_key, line.role, line.message_id)
            if delivered is not None and texts.get(delivered) == line.text:
                continue
            own = self._id("line", canonical.decode(), str(so_far[canonical]))
            if own in texts:  # imported before; its card is deleted
                continue
            card_id = own if delivered is None or delivered in texts else delivered
            texts[card_id] = line.text
            yield draft_line(line, number, card_id)

    # --- the archived contexts

    def archives(self) -> tuple[int, list[str]]:
        """Add the archived contexts that the chat lacks. Returns their number, and the ids that differ."""
        layouts = self._stores.archives.layouts(self._chat.chat_key)
        new, differing = [], []
        for record in self._files.archives:
            current = self._stores.archives.find(self._chat.chat_key, record.context_id)
            if current is None:
                new.append(record)
                continue
            cards = present_cards(self._stores.boxes.slots(current.box_id))
            same = record_of(current, cards, layouts.get(record.context_id))
            if _canonical(same) != _canonical(record):
                differing.append(record.context_id)
        # One statement for all cards: one for each archive takes far longer.
        self._stores.cards.add_many(
            draft for record in new for draft in self._drafts(record.messages, record.context_id)
        )
        for record in new:
            self._add(record)
        return len(new), differing

    def _add(self, record: ArchiveRecord) -> None:
        drafts = self._drafts(record.messages, record.context_id)
        archive = new_archive(
            self._chat.chat_key,
            record.context_id,
            self._box(drafts),
            drafts,
            created_at=parse_stamp(record.created_at),
            archived_at=parse_stamp(record.archived_at),
            title=None if record.title is UNSET else record.title,
            reason=None if record.reason is UNSET else record.reason,
        )
        items = self._files.items or []
        item = next((each for each in items if each.context_id == record.context_id), None)
        store_archive(
            self._stores,
            restore_checkpoint(archive, record),
            drafts,
            layout=layout_of(record, item, self._files.index_fields),
        )

    # --- the active context

    def context(self, *, replace: bool) -> ImportOutcome:
        """Make the messages of the file the active context, unless the chat's context differs."""
        messages = self._files.active
        if messages is None:
            return "absent"
        cards = present_cards(context_slots(self._stores, self._chat))
        current, new = [_canonical(message_of_card(card)) for card in cards], list(map(_canonical, messages))
        never_any = not current and self._chat.reset_by is None
        if current == new and not (never_any and messages == []):
            return "unchanged"
        if not replace and not never_any and not (current and new[: len(current)] == current):
            return "ahead" if current[: len(new)] == new else "kept"
        self._make_active(messages, replaces=not never_any and new[: len(current)] != current)
        return "imported"

    def _make_active(self, messages: Sequence[MessageRecord], *, replaces: bool) -> None:
        if replaces:
            archive_active(self._stores, self._chat, self._now)
        if not messages:
            self._chat = empty_head(self._chat, "clear", self._now)
            return
        context_id = new_id("ctx")
        drafts = self._drafts(messages, context_id)
        self._stores.cards.add_many(drafts)
        ts = messages[0].ts
        self._chat = msgspec.structs.replace(
            self._chat,
            context_id=context_id,
            context_box_id=self._box(drafts),
            context_created_at=self._now if ts is UNSET else parse_stamp(ts),
            loaded_from=None,
            version=self._chat.version + 1,
        )
        if replaces:
            self._chat = msgspec.structs.replace(self._chat, reset_by="load", reset_at=self._now)

    # --- the memory

    def memory(self, *, replace: bool) -> ImportOutcome:
        """Set the chat's memory to the text of the file, unless it has another one."""
        current, text = find_memory(self._stores, self._chat.chat_key), self._files.memory
        outcome = _text_outcome(None if current is None else current.text, text, replace=replace)
        if outcome == "imported" and text is not None:
            set_memory(self._stores, self._chat.chat_key, text)
        return outcome

    # --- cards and boxes

    def _drafts(self, messages: Iterable[MessageRecord], context_id: str) -> list[CardDraft]:
        return [
            draft_message(self._chat.chat_key, message, self._id("message", context_id, str(place)))
            for place, message in enumerate(messages)
        ]

    def _box(self, drafts: Sequence[CardDraft]) -> str:
        """Create a box of the messages of a context, whose cards exist."""
        card_ids = [draft.card_id for draft in drafts]
        title = f"context of {self._chat.chat_key}"
        return self._stores.boxes.create(card_ids, title=title, allow_dangling=True).box_id

    def _id(self, *parts: str) -> str:
        return derived_id(self._stores.project_id, "chat.layout", self._chat.chat_key, *parts).hex


def _check_idle(stores: ChatStores, chat: Chat) -> None:
    """Raise NotAccepted during a run, which would read the imported messages as new ones."""
    now = stores.database.now()
    if chat.is_busy(now):
        raise NotAccepted(
            f"chat {chat.chat_key!r} is busy: {chat.holder(now)}",
            hint="import the chat again after the run has ended",
            details={"error_code": "busy", "run_id": chat.run_id},
        )


def _canonical(record: TranscriptLine | MessageRecord | ArchiveRecord) -> bytes:
    return exact_json.canonical(exact_json.encode(record.encode()))
