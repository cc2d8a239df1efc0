"""Export of a chat to the `.ship` layout: the files that it was imported from, and later entries."""

import msgspec

from cardbox_cli.chat.files.layout_files import ChatFiles, TranscriptFile, roll_over
from cardbox_cli.chat.files.record_cards import (
    GROWING,
    file_of_card,
    item_of,
    line_of_card,
    message_of_card,
    record_of,
)
from cardbox_cli.chat.files.records import (
    ArchiveRecord,
    IndexItem,
    MessageRecord,
    TranscriptLine,
    is_archive_id,
)
from cardbox_cli.chat.persona_texts import find_memory
from cardbox_cli.model.cards import Card
from cardbox_cli.model.chats import Chat
from cardbox_cli.store.chats import ChatStores


class ExportedChat(msgspec.Struct, frozen=True):
    """The files of a chat to write.

    `gone` are the ids of deleted cards, which are left out; `unnamed` the ids of archived contexts that are
    not valid file names.
    """

    files: ChatFiles
    gone: list[str]
    unnamed: list[str]


def export_chat(stores: ChatStores, chat_key: str) -> ExportedChat:
    """Build the files of a chat in the caller's snapshot. Raises NotFound for an unknown chat."""
    chat = stores.chats.get(chat_key)
    exporter = _Exporter(stores, chat)
    archives, items = exporter.archives()
    remembered = find_memory(stores, chat_key)
    files = ChatFiles(
        chat_key=chat_key,
        transcript=exporter.transcript(),
        active=exporter.active(),
        archives=archives,
        items=items or None,
        index_fields=exporter.index_fields,
        memory=None if remembered is None else remembered.text,
    )
    return ExportedChat(files, exporter.gone, exporter.unnamed)


class _Exporter:
    def __init__(self, stores: ChatStores, chat: Chat) -> None:
        self._stores = stores
        self._chat = chat
        self.gone: list[str] = []
        self.unnamed: list[str] = []
        self.index_fields: dict[str, object] = {}

    def transcript(self) -> list[TranscriptFile]:
        """Return the imported lines in their files, followed by later entries."""
        files: dict[int, list[TranscriptLine]] = {}
        more: list[TranscriptLine] = []
        for entry in self._stores.chats.stream_entries(self._chat):
            if entry.card is None:
                self.gone.append(entry.card_id)
                continue
            number = file_of_card(entry.card)
            line = line_of_card(self._chat.chat_key, entry.card)
            if number is None or more or not _keeps_order(files, number):
                more.append(line)
            else:
                files.setdefault(number, []).append(line)
        imported = [TranscriptFile(number or None, lines) for number, lines in files.items()]
        return roll_over(imported, more) if imported or more else []

    def active(self) -> list[MessageRecord] | None:
        """Return the messages of the active context, None if the chat never had one."""
        if self._chat.context_box_id is None:
            return None if self._chat.reset_by is None else []
        return [message_of_card(card) for card in self._cards(self._chat.context_box_id)]

    def archives(self) -> tuple[list[ArchiveRecord], list[IndexItem]]:
        layouts = self._stores.archives.layouts(self._chat.chat_key)
        records, items = [], []
        for archive in self._stores.archives.newest(self._chat.chat_key):
            if not is_archive_id(archive.context_id):
                self.unnamed.append(archive.context_id)
                continue
            layout = layouts.get(archive.context_id)
            record = record_of(archive, self._cards(archive.box_id), layout)
            records.append(record)
            items.append(item_of(record, layout))
            index_fields = (layout or {}).get("beside")
            self.index_fields = self.index_fields or (index_fields if isinstance(index_fields, dict) else {})
        return records, items

    def _cards(self, box_id: str) -> list[Card]:
        cards = []
        for slot in self._stores.boxes.slots(box_id):
            if slot.card is None or slot.state != "present":
                self.gone.append(slot.card_id)
            else:
                cards.append(slot.card)
        return cards


def _keeps_order(files: dict[int, list[TranscriptLine]], number: int) -> bool:
    """Return whether a line of file `number` may follow the lines in `files`, by the order of files."""
    last = next(reversed(files), None)
    return last is None or number == last or (last != GROWING and (number == GROWING or number > last))
