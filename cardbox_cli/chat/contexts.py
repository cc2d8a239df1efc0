"""The contexts of a chat: the active one, which a model works with, and the archived snapshots.

Each operation is one transaction and acts at once: a running run composes its next step from the context that
is active then. To archive a context, its box becomes a snapshot; to load it, a new box gets the same cards.
A context changes only by an explicit call.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import combinations
from typing import Any

import msgspec

from cardbox_cli.chat.context_search import (
    ContextIndex,
    ContextMatch,
    join_search_text,
    rank,
    search_strings,
    split_terms,
)
from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.limits import SEARCH_TEXT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card, CardDraft, card_text
from cardbox_cli.model.chats import PREVIEW, Archive, Chat, ResetBy
from cardbox_cli.model.execution.turns import new_id
from cardbox_cli.model.ids import unique
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.text.command_lines import quote_argument

# --- search: the database returns a few of the newest candidates, and `context_search` ranks them

# The number of words of a query that count, and of candidates that one query to the database returns.
_MAX_WORDS = 6
_MAX_CANDIDATES = 20


def search_best(stores: ChatStores, chat_key: str, words: str) -> ContextMatch:
    """Return the archived context that matches the words best. Raises NotFound if none matches."""
    if not words.strip():
        raise InvalidInput("no archived context given", hint="pass a context id, or words with --query")
    if len(words) > SEARCH_TEXT_SIZE.value:
        raise InvalidInput(
            f"the query has {len(words)} characters; the limit is {SEARCH_TEXT_SIZE.value}",
            hint="pass a few words from the title or the messages",
        )
    terms = split_terms(words)[:_MAX_WORDS]
    if not terms:
        raise InvalidInput("the query has no words", hint="pass words from the title or the messages")
    search = _Search(stores, chat_key)
    context_ids = list(search.search_words(terms)) or list(search.search_parts(terms, words))
    matches = rank(stores.archives.search_candidates(chat_key, unique(context_ids)), words)
    if not matches:
        raise NotFound(
            f"no archived context of chat {chat_key!r} matches {words!r}",
            hint=f"`cbx chat list {quote_argument(chat_key)}` lists them",
        )
    return matches[0]


class _Search:
    """The queries that narrow the candidates by their index numbers."""

    def __init__(self, stores: ChatStores, chat_key: str) -> None:
        self._archives = stores.archives
        self._chat_key = chat_key
        self._index = ContextIndex(stores.project_id, chat_key)

    def search_words(self, terms: Sequence[str]) -> Iterator[str]:
        """Yield the newest contexts that have as many of these words as possible.

        If there may be more than these `_MAX_CANDIDATES`, also yield contexts that have one of the words in
        the title, or a further term within a word.
        """
        known = [term for term in terms if self._newest(self._index.word_numbers(term), limit=1)]
        for size in range(len(known), 0, -1):
            choices = combinations(known, size)
            if context_ids := [each for chosen in choices for each in self._search_all(chosen, terms)]:
                yield from context_ids
                return

    def _search_all(self, chosen: Sequence[str], terms: Sequence[str]) -> Iterator[str]:
        words = [number for term in chosen for number in self._index.word_numbers(term)]
        newest = self._newest(words)
        yield from newest
        if len(newest) < _MAX_CANDIDATES:
            return
        for term in chosen:
            yield from self._newest([*words, *self._index.title_numbers(term)])
        for term in terms:
            if term not in chosen:
                yield from self._newest([*words, *self._index.part_numbers(term)])

    def search_parts(self, terms: Sequence[str], words: str) -> Iterator[str]:
        """Yield the newest contexts that have any of the terms within a word or a text without spaces."""
        for term in (*terms, *search_strings(words)[: _MAX_WORDS * 4]):
            yield from self._newest(self._index.part_numbers(term))

    def _newest(self, numbers: Sequence[int], limit: int = _MAX_CANDIDATES) -> list[str]:
        return self._archives.find_by_terms(self._chat_key, numbers, limit)


class ContextChange(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a change of the active context.

    `archived` is the snapshot that holds the previous context, None if that was empty or discarded. If
    `was_archived`, the snapshot existed before and keeps its title and reason. `loaded` is the snapshot that
    is active now, with its number of `messages`; `why` explains its rank if a search chose it. `run_id` is
    the running run, which continues with the new context.
    """

    chat_key: str
    archived: str | None = None
    was_archived: bool = False
    loaded: str | None = None
    messages: int = 0
    run_id: str | None = None
    why: str | None = None


def context_slots(stores: ChatStores, chat: Chat) -> list[Slot]:
    """Return the messages of the active context, in order."""
    return [] if chat.context_box_id is None else stores.boxes.slots(chat.context_box_id)


def start_new(
    stores: ChatStores, chat_key: str, *, title: str | None = None, reason: str | None = None
) -> ContextChange:
    """Archive the active context and start an empty one. Raises NotFound for an unknown chat.

    A loaded snapshot without changes is not archived again.
    """
    _check_texts(title=title, reason=reason)
    with stores.transaction():
        chat = stores.chats.lock(chat_key)
        now = stores.database.now()
        archived = archive_active(stores, chat, now, title=title, reason=reason)
        stores.chats.write(empty_head(chat, "new", now, archived=archived), now)
        return ContextChange(
            chat_key=chat_key,
            archived=archived,
            was_archived=archived is not None and chat.is_as_loaded,
            run_id=_run_of(chat, now),
        )


def clear(stores: ChatStores, chat_key: str) -> ContextChange:
    """Empty the active context without archiving it. Raises NotFound for an unknown chat."""
    with stores.transaction():
        chat = stores.chats.lock(chat_key)
        now = stores.database.now()
        stores.chats.write(empty_head(chat, "clear", now), now)
        return ContextChange(chat_key=chat_key, run_id=_run_of(chat, now))


def load(
    stores: ChatStores, chat_key: str, context_id: str | None = None, *, words: str | None = None
) -> ContextChange:
    """Load a snapshot as the active context: the one of this id, or the best match of the words.

    The previous context is archived first. Raises NotFound for an unknown chat or snapshot, and if the words
    match none.
    """
    with stores.transaction():
        chat = stores.chats.lock(chat_key)
        now = stores.database.now()
        why = None
        if context_id is None:
            best = search_best(stores, chat_key, words or "")
            context_id, why = best.context_id, best.why
        archive = stores.archives.get(chat_key, context_id)
        changed = ContextChange(
            chat_key=chat_key,
            loaded=archive.context_id,
            messages=archive.messages,
            run_id=_run_of(chat, now),
            why=why,
        )
        if chat.is_as_loaded and chat.context_id == archive.context_id:
            return changed
        archived = archive_active(stores, chat, now)
        stores.chats.write(_load_snapshot(stores, chat, archive, now), now)
        was_archived = archived is not None and chat.is_as_loaded
        return msgspec.structs.replace(changed, archived=archived, was_archived=was_archived)


def _load_snapshot(stores: ChatStores, chat: Chat, archive: Archive, now: datetime) -> Chat:
    snapshot = stores.boxes.get(archive.box_id)
    box = stores.boxes.create(
        snapshot.card_ids,
        parent_ids=[snapshot.box_id],
        title=f"context of {chat.chat_key}, from {archive.context_id}",
        allow_dangling=True,
    )
    return msgspec.structs.replace(
        chat,
        context_id=archive.context_id,
        context_box_id=box.box_id,
        context_created_at=archive.created_at,
        loaded_from=archive.context_id,
        version=chat.version + 1,
        reset_by="load",
        reset_at=now,
    )


def empty_head(chat: Chat, by: ResetBy, now: datetime, *, archived: str | None = None) -> Chat:
    """Return the head of a chat with an empty active context. The caller writes it.

    `loaded_from` remains the snapshot of the replaced context: the `archived` one, or the one it came from.
    """
    return msgspec.structs.replace(
        chat,
        context_id=None,
        context_box_id=None,
        context_created_at=None,
        loaded_from=archived or chat.loaded_from,
        window_start=chat.entries,
        version=chat.version + 1,
        reset_by=by,
        reset_at=now,
    )


def archive_active(
    stores: ChatStores, chat: Chat, now: datetime, *, title: str | None = None, reason: str | None = None
) -> str | None:
    """Archive the active context of a locked chat, unless it is an unchanged snapshot.

    Returns the id of the snapshot, None if nothing is active.
    """
    if chat.context_box_id is None or chat.context_id is None:
        return None
    if chat.is_as_loaded:
        return chat.context_id
    cards = [slot.card for slot in context_slots(stores, chat) if slot.card is not None]
    archive = new_archive(
        chat.chat_key,
        chat.context_id,
        chat.context_box_id,
        cards,
        created_at=chat.context_created_at or now,
        archived_at=now,
        title=title,
        reason=reason,
    )
    store_archive(stores, archive, cards)
    return archive.context_id


def new_archive(
    chat_key: str,
    context_id: str,
    box_id: str,
    cards: Sequence[Card | CardDraft],
    *,
    created_at: datetime,
    archived_at: datetime,
    title: str | None,
    reason: str | None,
) -> Archive:
    """Return the row of an archived context. Its checkpoint is the last message of an assistant."""
    last = max((index for index, card in enumerate(cards) if card.role == "assistant"), default=None)
    return Archive(
        context_id=context_id,
        chat_key=chat_key,
        box_id=box_id,
        title=title,
        reason=reason,
        checkpoint_index=last,
        checkpoint_preview=None if last is None else card_text(cards[last].content)[:PREVIEW],
        messages=len(cards),
        created_at=created_at,
        archived_at=archived_at,
    )


def store_archive(
    stores: ChatStores,
    archive: Archive,
    cards: Sequence[Card | CardDraft],
    *,
    layout: Mapping[str, Any] | None = None,
) -> bool:
    """Write an archived context and its index numbers. Returns False if the chat has it already.

    `layout` holds the further fields of the file that it was imported from.
    """
    text = join_search_text(card_text(card.content) for card in cards)
    terms = ContextIndex(stores.project_id, archive.chat_key).archive_numbers(archive, text)
    return stores.archives.add(archive, search_text=text, terms=terms, layout=layout)


def append_round(stores: ChatStores, chat: Chat, card_ids: Sequence[str], now: datetime) -> Chat:
    """Append the messages of a round to the active context of a locked chat.

    A loaded snapshot becomes a new context. Returns the head, which the caller writes.
    """
    if chat.context_box_id is None:
        box_id = stores.boxes.create(card_ids, title=f"context of {chat.chat_key}").box_id
        return msgspec.structs.replace(
            chat, context_id=new_id("ctx"), context_box_id=box_id, context_created_at=now, loaded_from=None
        )
    stores.boxes.append(chat.context_box_id, card_ids, of_chat=True)
    if chat.is_as_loaded:
        return msgspec.structs.replace(chat, context_id=new_id("ctx"), context_created_at=now)
    return chat


def _run_of(chat: Chat, now: datetime) -> str | None:
    return chat.run_id if chat.is_busy(now) else None


def _check_texts(**texts: str | None) -> None:
    for name, text in texts.items():
        try:
            exact_json.check_storable(text, name)
        except exact_json.Unstorable as exc:
            raise InvalidInput(f"--{name}: {exc}", hint="remove that character") from exc
        if text is not None and len(text) > SEARCH_TEXT_SIZE.value:
            raise InvalidInput(
                f"--{name}: {len(text)} characters exceed the limit of {SEARCH_TEXT_SIZE.value}",
                hint="pass a few words that help you find the context again",
            )
