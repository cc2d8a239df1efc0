"""The heads of chats, and their transcripts: chains of boxes whose ids follow from the place of an entry.

The head is the first lock of every change of a chat. Methods take part in the caller's transaction; what they
write was decided on by who holds the head.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

import msgspec

from cardbox_cli.errors import StaleEpoch
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.chats import BOX_CARDS, Chat, ChatFence, Entry, near_to, transcript_box
from cardbox_cli.model.ids import unique
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.project_store import ProjectStore, paged
from cardbox_cli.store.connection.tables import CHATS
from cardbox_cli.text import argument

# Behind every key that begins with a text, as keys sort by code point.
_LAST = "\U0010ffff"


class ChatStore(ProjectStore):
    """The chats of one project. Raises SchemaMissing where the database has no tables for them."""

    def __init__(self, database: Database, project_id: str) -> None:
        super().__init__(database, project_id)
        self._require(*CHATS)
        self._cards = CardStore(database, project_id)
        self._boxes = BoxStore(database, project_id)

    def find(self, chat_key: str) -> Chat | None:
        """The head of this chat."""
        return self._one(Chat, "chat", chat_key=chat_key)

    def get(self, chat_key: str) -> Chat:
        """The head of this chat. Raises NotFound."""
        return self._of(self.find(chat_key), chat_key)

    def lock(self, chat_key: str) -> Chat:
        """The head of this chat, held until the end of the transaction. Raises NotFound."""
        return self._of(self._one(Chat, "lock_chat", chat_key=chat_key), chat_key)

    def lock_or_make(self, chat_key: str) -> Chat:
        """`lock`; a chat that there is not begins with that."""
        found = self._one(Chat, "lock_chat", chat_key=chat_key)
        if found is not None:
            return found
        self._run("ensure_chat", chat_key=chat_key, now=self.database.now())
        return self.lock(chat_key)

    def hold(self, fence: ChatFence) -> Chat:
        """Lock the head for a write of this run. Raises StaleEpoch where the chat is elsewhere."""
        chat = self.lock(fence.chat_key)
        if chat.fence != fence:
            raise self.stale(fence, chat)
        return chat

    def stale(self, fence: ChatFence, chat: Chat) -> StaleEpoch:
        """The error that says what became of a chat since `fence` was valid."""
        at = "no run" if chat.run_id is None else f"run {chat.run_id}, epoch {chat.epoch}"
        return StaleEpoch(
            f"run {fence.run_id} does not have chat {fence.chat_key!r} any more, which is at {at}",
            hint=f"nothing was written; `cbx chat show {argument(fence.chat_key)}` shows its last runs",
            details={"chat_key": fence.chat_key, "run_id": fence.run_id, "epoch": fence.epoch},
        )

    def write(self, chat: Chat, now: datetime) -> Chat:
        """The head as it is from now on."""
        written = msgspec.structs.replace(chat, updated_at=now)
        self._run("write_chat", **msgspec.structs.asdict(written))
        return written

    def extend_lease(self, fence: ChatFence, expires_at: datetime) -> bool:
        """Let the lease of a run last until then; False where the run has lost it."""
        return self._run("extend_chat_lease", **msgspec.structs.asdict(fence), expires_at=expires_at) > 0

    def all(self, *, limit: int | None = None, behind: str | None = None) -> Iterator[Chat]:
        """The chats in the order of their keys, or those behind a key, read in pages."""
        return paged(partial(self._page, behind or ""), limit=limit)

    def beginning(self, text: str, *, limit: int) -> list[Chat]:
        """The chats whose keys begin so, those last used first."""
        return self._all(Chat, "chats_between", first=text, last=text + _LAST, limit=limit)

    def near(self, chat_key: str, limit: int) -> list[Chat]:
        """The other chats whose keys are near, those last used first: topics of the same chat."""
        found = self.beginning(near_to(chat_key), limit=limit + 1)
        return [chat for chat in found if chat.chat_key != chat_key][:limit]

    def other_projects(self, chat_key: str, limit: int) -> list[str]:
        """The other projects that have a chat of this key."""
        found = self._column("projects_with_chat", chat_key=chat_key, limit=limit + 1)
        return [project for project in found if project != self.project_id][:limit]

    # --- transcripts

    def append(self, chat: Chat, drafts: Sequence[CardDraft]) -> Chat:
        """Add entries at the end of the transcript of a chat that is held; its head, yet to be written.

        Those whose cards are there already are left out: the transcript has them.

        Raises CardConflict for an id that another card has.
        """
        absent = set(self._cards.absent([draft.card_id for draft in drafts]))
        # What is there already must be the same card, or it is a conflict.
        self._cards.add_many(drafts)
        new = unique(draft.card_id for draft in drafts if draft.card_id in absent)
        while new:
            room = BOX_CARDS - chat.entries % BOX_CARDS
            chat, new = self._fill(chat, new[:room]), new[room:]
        return chat

    def _fill(self, chat: Chat, card_ids: Sequence[str]) -> Chat:
        box_id = transcript_box(self.project_id, chat.chat_key, chat.entries)
        if chat.entries % BOX_CARDS:
            self._boxes.append(box_id, card_ids, of_chat=True)
        else:
            before = [] if chat.transcript_box_id is None else [chat.transcript_box_id]
            title = f"transcript of {chat.chat_key} from {chat.entries}"
            self._boxes.create(card_ids, box_id=box_id, parent_ids=before, title=title)
        return msgspec.structs.replace(chat, entries=chat.entries + len(card_ids), transcript_box_id=box_id)

    def entries(self, chat: Chat, start: int, end: int | None = None) -> list[Entry]:
        """The entries of a transcript from a place to before another, by default its end, in order."""
        return list(self.stream_entries(chat, start, end))

    def stream_entries(self, chat: Chat, start: int = 0, end: int | None = None) -> Iterator[Entry]:
        """`entries`, a box at a time."""
        position = max(start, 0)
        last = chat.entries if end is None else min(end, chat.entries)
        while position < last:
            first = position % BOX_CARDS
            count = min(BOX_CARDS - first, last - position)
            box_id = transcript_box(self.project_id, chat.chat_key, position)
            card_ids = self._column("slice_of_box", box_id=box_id, start=first, end=first + count)
            cards = {card.card_id: card for card in self._cards.get_many(card_ids).cards}
            for place, card_id in enumerate(card_ids, position):
                yield Entry(position=place, card_id=card_id, card=cards.get(card_id))
            position += count

    def _page(self, behind: str, after: Chat | None, size: int) -> list[Chat]:
        return self._all(Chat, "list_chats", after=behind if after is None else after.chat_key, limit=size)

    def _of(self, chat: Chat | None, chat_key: str) -> Chat:
        why = f"`cbx chat why {argument(chat_key)}` names keys that are near"
        return self._found(chat, "chat", chat_key, why)
