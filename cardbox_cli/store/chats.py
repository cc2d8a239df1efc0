"""Chats in Postgres: heads and transcripts, archived contexts, runs and their steps.

Every change of a chat locks its head first. Methods run in the transaction of the caller, who has locked the
head. They do not check the rules of chats.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from cardbox_cli.errors import NotFound, StaleEpoch
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.chats import (
    BOX_CARDS,
    Archive,
    Chat,
    ChatFence,
    ChatRun,
    Entry,
    SearchCandidate,
    chat_key_prefix,
    transcript_box,
)
from cardbox_cli.model.execution.turns import COMPLETED, Step
from cardbox_cli.model.ids import unique
from cardbox_cli.settings import Settings, read_settings
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database, jsonb
from cardbox_cli.store.connection.project_store import (
    MAX_COUNTED,
    DateFilter,
    ProjectStore,
    like_escape,
    page_parameters,
    read_pages,
    require_single,
)
from cardbox_cli.store.connection.tables import CHATS
from cardbox_cli.text.command_lines import quote_argument

# --- heads and transcripts. A transcript is a chain of boxes. Their ids are derived from entry positions.


# Greater than any character that follows a prefix, because keys sort by code point.
_MAX_CHARACTER = "\U0010ffff"


class ChatStore(ProjectStore):
    """The chats of one project. Raises SchemaMissing if the database has no tables for them."""

    def __init__(self, database: Database, project_id: str) -> None:
        super().__init__(database, project_id)
        self._require(*CHATS)
        self._cards = CardStore(database, project_id)
        self._boxes = BoxStore(database, project_id)

    def find(self, chat_key: str) -> Chat | None:
        return self._one(Chat, "chat", chat_key=chat_key)

    def get(self, chat_key: str) -> Chat:
        """Return the head of this chat. Raises NotFound."""
        return self._require_chat(self.find(chat_key), chat_key)

    def lock(self, chat_key: str) -> Chat:
        """Return the head of this chat, locked until the end of the transaction. Raises NotFound."""
        return self._require_chat(self._one(Chat, "lock_chat", chat_key=chat_key), chat_key)

    def lock_or_create(self, chat_key: str) -> Chat:
        """Lock the head as `lock` does, and create the chat if it does not exist."""
        chat = self._one(Chat, "lock_chat", chat_key=chat_key)
        if chat is not None:
            return chat
        self._run("ensure_chat", chat_key=chat_key, now=self.database.now())
        return self.lock(chat_key)

    def hold(self, fence: ChatFence) -> Chat:
        """Lock the head for a write of the run in `fence`. Raises StaleEpoch if the fence is outdated."""
        chat = self.lock(fence.chat_key)
        if chat.fence != fence:
            raise self.stale_error(fence, chat)
        return chat

    def stale_error(self, fence: ChatFence, chat: Chat) -> StaleEpoch:
        at = "no run" if chat.run_id is None else f"run {chat.run_id}, epoch {chat.epoch}"
        return StaleEpoch(
            f"run {fence.run_id} no longer holds chat {fence.chat_key!r}, which is now at {at}",
            hint=f"nothing was written; `cbx chat show {quote_argument(fence.chat_key)}` shows its last runs",
            details={"chat_key": fence.chat_key, "run_id": fence.run_id, "epoch": fence.epoch},
        )

    def write(self, chat: Chat, now: datetime) -> Chat:
        written = msgspec.structs.replace(chat, updated_at=now)
        self._run("write_chat", **msgspec.structs.asdict(written))
        return written

    def extend_lease(self, fence: ChatFence, expires_at: datetime) -> bool:
        return self._run("extend_chat_lease", **msgspec.structs.asdict(fence), expires_at=expires_at) > 0

    def all(self, *, limit: int | None = None, behind: str | None = None) -> Iterator[Chat]:
        """Yield the chats by key, page by page. With `behind`, yields only those with greater keys."""
        return read_pages(partial(self._page, behind or ""), limit=limit)

    def find_by_prefix(self, text: str, *, limit: int) -> list[Chat]:
        """Return the chats whose keys begin with `text`, last used first."""
        return self._all(Chat, "chats_between", first=text, last=text + _MAX_CHARACTER, limit=limit)

    def similar(self, chat_key: str, limit: int) -> list[Chat]:
        """Return other chats whose keys have the same prefix, such as topics of one chat, last used first."""
        chats = self.find_by_prefix(chat_key_prefix(chat_key), limit=limit + 1)
        return [each for each in chats if each.chat_key != chat_key][:limit]

    def other_projects(self, chat_key: str, limit: int) -> list[str]:
        projects = self._column("projects_with_chat", chat_key=chat_key, limit=limit + 1)
        return [project for project in projects if project != self.project_id][:limit]

    # --- transcripts

    def append(self, chat: Chat, drafts: Sequence[CardDraft]) -> Chat:
        """Append entries to the transcript of a locked chat. Returns the new head for the caller to write.

        Skips entries whose cards exist. Raises CardConflict if a different card has the id of an entry.
        """
        absent = set(self._cards.missing_ids([draft.card_id for draft in drafts]))
        # Raises CardConflict if an existing card differs.
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
        """Return the entries from position `start` up to, but not including, `end`, or up to the last one."""
        return list(self.stream_entries(chat, start, end))

    def stream_entries(self, chat: Chat, start: int = 0, end: int | None = None) -> Iterator[Entry]:
        position = max(start, 0)
        last = chat.entries if end is None else min(end, chat.entries)
        while position < last:
            first = position % BOX_CARDS
            count = min(BOX_CARDS - first, last - position)
            box_id = transcript_box(self.project_id, chat.chat_key, position)
            card_ids = self._column("slice_of_box", box_id=box_id, start=first, end=first + count)
            cards = {card.card_id: card for card in self._cards.get_many(card_ids).cards}
            for number, card_id in enumerate(card_ids, position):
                yield Entry(position=number, card_id=card_id, card=cards.get(card_id))
            position += count

    def _page(self, behind: str, after: Chat | None, size: int) -> list[Chat]:
        return self._all(Chat, "list_chats", after=behind if after is None else after.chat_key, limit=size)

    def _require_chat(self, chat: Chat | None, chat_key: str) -> Chat:
        why = f"`cbx chat why {quote_argument(chat_key)}` suggests similar keys"
        return self._require_item(chat, "chat", chat_key, why)


# --- archived contexts: rows that describe the boxes with their cards. A written row never changes.


_BY_AGE = {"key": "context_id", "time": "archived_at"}


class ArchiveStore(ProjectStore):
    def add(
        self,
        archive: Archive,
        *,
        search_text: str,
        terms: Sequence[int],
        layout: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write an archived context. Returns False if the chat already has it.

        `layout` holds the fields of the imported file that `archive` does not have.
        """
        row = {**msgspec.structs.asdict(archive), "search_text": search_text, "terms": list(terms)}
        stored_layout = None if layout is None else jsonb(dict(layout))
        return self._run("insert_chat_context", **row, layout=stored_layout) > 0

    def layouts(self, chat_key: str) -> dict[str, Any]:
        """Return, by context id, the fields of imported files for which `Archive` has no field."""
        rows = self._rows("chat_context_layouts", chat_key=chat_key)
        decoded = ((context_id, exact_json.decode_stored(layout)) for context_id, layout in rows)
        return {context_id: layout for context_id, layout in decoded if isinstance(layout, dict)}

    def find(self, chat_key: str, context_id: str) -> Archive | None:
        return self._one(Archive, "chat_context", chat_key=chat_key, context_id=context_id)

    def get(self, chat_key: str, wanted: str) -> Archive:
        """Return the archived context for an id or for a unique part of one. Raises NotFound, AmbiguousId."""
        archive = self.find(chat_key, wanted) or self.find(chat_key, self._resolve(chat_key, wanted))
        # Rows of this table are never deleted.
        assert archive is not None
        return archive

    def newest(self, chat_key: str, *, limit: int | None = None) -> Iterator[Archive]:
        """Yield the archived contexts of a chat, newest first, reading page by page."""
        return read_pages(partial(self._page, chat_key), limit=limit)

    def count(self, chat_key: str) -> int:
        """Return how many archived contexts a chat has, at most 10,000."""
        return int(self._value("count_chat_contexts", chat_key=chat_key, limit=MAX_COUNTED))

    def find_by_terms(self, chat_key: str, terms: Sequence[int], limit: int) -> list[str]:
        """Return the ids of the newest archived contexts that have all of these terms."""
        return self._column("newest_with_terms", chat_key=chat_key, all_of=list(terms), limit=limit)

    def search_candidates(self, chat_key: str, context_ids: Sequence[str]) -> list[SearchCandidate]:
        """Return the data that a search needs to rank these archived contexts, newest first."""
        ids = list(context_ids)
        return self._all(SearchCandidate, "findable_chat_contexts", chat_key=chat_key, context_ids=ids)

    def _resolve(self, chat_key: str, wanted: str) -> str:
        part = like_escape(wanted)
        begins = part if wanted.startswith("ctx_") else f"ctx\\_{part}"
        patterns = {"beginning": f"{begins}%", "ending": f"%{part}"}
        candidates = self._column("find_chat_contexts", chat_key=chat_key, **patterns)
        if not candidates:
            hint = f"`cbx chat list {quote_argument(chat_key)}` lists them"
            raise NotFound(f"chat {chat_key!r} has no archived context {wanted!r}", hint=hint)
        return require_single("chat context", wanted, candidates, self.project_id)

    def _page(self, chat_key: str, after: Archive | None, size: int) -> list[Archive]:
        place = page_parameters(DateFilter(), after, size, **_BY_AGE)
        return self._all(Archive, "list_chat_contexts", chat_key=chat_key, **place)


# --- runs of chats, and their steps


_ANY_TIME = DateFilter()


class ChatRunStore(ProjectStore):
    def begin(self, run: ChatRun) -> None:
        self._run("insert_chat_run", **_columns(run))

    def write(self, run: ChatRun) -> None:
        self._run("write_chat_run", **_columns(run))

    def find(self, chat_key: str, run_id: str) -> ChatRun | None:
        return self._one(ChatRun, "chat_run", chat_key=chat_key, run_id=run_id)

    def get(self, chat_key: str, run_id: str) -> ChatRun:
        """Return the run with this id. Raises NotFound."""
        run = self.find(chat_key, run_id)
        if run is None:
            hint = "another program has changed its rows; the next `cbx chat run` continues without it"
            raise NotFound(f"chat {chat_key!r} refers to an unknown run {run_id[:80]!r}", hint=hint)
        return run

    def last(self, chat_key: str, limit: int | None, where: DateFilter = _ANY_TIME) -> list[ChatRun]:
        """Return the last runs of a chat in the time range, newest first. Returns all if `limit` is None."""
        dated = msgspec.structs.asdict(self._resolve_dates(where))
        return self._all(ChatRun, "last_chat_runs", chat_key=chat_key, limit=limit, **dated)

    def begin_step(
        self, run: ChatRun, step_id: str, *, request_box_id: str, metadata: dict[str, Any], now: datetime
    ) -> None:
        step = {"step_id": step_id, "status": "llm_ready", "request_box_id": request_box_id, "now": now}
        values = {**msgspec.structs.asdict(run), **step, "metadata": jsonb(metadata)}
        self._run("insert_chat_step", **values)

    def move_step(
        self,
        chat_key: str,
        step_id: str,
        status: str,
        *,
        now: datetime,
        tool_call_ids: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Write the next state of a step. The state `completed` ends it."""
        ended_at = now if status == COMPLETED else None
        step = {"chat_key": chat_key, "step_id": step_id, "status": status, "ended_at": ended_at}
        calls = None if tool_call_ids is None else jsonb(list(tool_call_ids))
        self._run("move_chat_step", **step, tool_call_ids=calls, metadata=jsonb(metadata or {}))

    def close_steps(self, run: ChatRun, status: str, error: str | None, now: datetime) -> None:
        of_run = {"chat_key": run.chat_key, "run_id": run.run_id}
        self._run("close_chat_steps", **of_run, status=status, error=error, now=now)

    def steps(self, chat_key: str, run_id: str) -> list[Step]:
        """Return the steps of a run in order. `agent_id` is the chat's key, `agent_turn_id` the run's id."""
        return self._all(Step, "steps_of_chat_run", chat_key=chat_key, run_id=run_id)

    def steps_like(self, chat_key: str, wanted: str) -> list[Step]:
        """Return up to six steps of a chat whose ids begin or end with `wanted`, newest first."""
        part = like_escape(wanted)
        begins = part if wanted.startswith("step_") else f"step\\_{part}"
        patterns = {"beginning": f"{begins}%", "ending": f"%{part}"}
        return self._all(Step, "find_chat_steps", chat_key=chat_key, **patterns)


def _columns(run: ChatRun) -> dict[str, Any]:
    lists = {"user_card_ids": jsonb(run.user_card_ids), "reply_card_ids": jsonb(run.reply_card_ids)}
    return {**msgspec.structs.asdict(run), **lists}


class ChatStores:
    """The stores for use cases of chats. Raises SchemaMissing if the database has no tables for chats.

    A use case is one transaction that locks the head of its chat first.
    """

    def __init__(self, database: Database, project_id: str, settings: Settings | None = None) -> None:
        self.database = database
        self.project_id = project_id
        self.settings = settings or read_settings()
        self.chats = ChatStore(database, project_id)
        self.archives = ArchiveStore(database, project_id)
        self.runs = ChatRunStore(database, project_id)
        self.cards = CardStore(database, project_id)
        self.boxes = BoxStore(database, project_id)
        self.transaction = database.transaction
        self.snapshot = database.snapshot
