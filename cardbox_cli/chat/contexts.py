"""The contexts of a chat: the active one, which a model works with, and the snapshots that were archived.

Each operation is one transaction and acts at once: a run that goes on composes its next step anew from what
is active then. A box becomes a snapshot by changing hands; a snapshot becomes active as a new box with the
same cards. Nothing is judged here: a context changes by an explicit call alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import combinations
from typing import Any

import msgspec

from cardbox_cli.chat.context_search import Candidate, IndexTerms, needles, ranked, search_text, terms
from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.limits import WORDS_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card, CardDraft, card_text
from cardbox_cli.model.chats import PREVIEW, Archive, Chat, ResetBy
from cardbox_cli.model.execution.turns import new_id
from cardbox_cli.model.ids import unique
from cardbox_cli.store.chats import Room
from cardbox_cli.text import argument

# Which archived contexts of a chat a few words find. The database narrows the candidates, newest first, and
# never brings more than a few; `search.py` ranks these by their texts.


# How many words of a query count, and how many of the newest contexts with as many of them are looked at.
_WORDS = 6
_LOOKED_AT = 20


class Ranked(msgspec.Struct, frozen=True):
    """An archived context that words found, and how it ranked."""

    context_id: str
    why: str


def find(room: Room, chat_key: str, words: str, *, limit: int) -> list[Ranked]:
    """The archived contexts that have most of the words, the best first. Raises NotFound for none."""
    if len(words) > WORDS_SIZE.value:
        raise InvalidInput(
            f"the words to look for have {len(words)} characters, not {WORDS_SIZE.value}",
            hint="a few words of the title or the messages are enough",
        )
    wanted = terms(words)[:_WORDS]
    if not wanted:
        raise InvalidInput("there is no word to look for", hint="give words of the title or the messages")
    index = IndexTerms(room.project_id, chat_key)
    search = _Search(room, chat_key, index)
    found = list(search.by_words(wanted)) or list(search.by_parts(wanted, words))
    candidates = [
        Candidate(
            context_id=each.context_id,
            title=each.title or "",
            reason=each.reason or "",
            messages=each.search_text,
            archived_at=each.archived_at,
        )
        for each in room.archives.findable(chat_key, unique(found))
    ]
    best = ranked(candidates, words)
    if not best:
        raise NotFound(
            f"no archived context of chat {chat_key!r} has {words!r}",
            hint=f"`cbx chat list {argument(chat_key)}` lists them",
        )
    return [Ranked(each.context_id, each.why) for each in best[:limit]]


class _Search:
    """Narrows the candidates by the numbers that their texts have."""

    def __init__(self, room: Room, chat_key: str, index: IndexTerms) -> None:
        self._archives = room.archives
        self._chat_key = chat_key
        self._index = index

    def by_words(self, wanted: Sequence[str]) -> Iterator[str]:
        """The newest contexts of those with most of these words; of as many, those that have one in the
        title, or a further one within a word."""
        there = [term for term in wanted if self._newest(self._index.word(term), limit=1)]
        for size in range(len(there), 0, -1):
            found = [each for chosen in combinations(there, size) for each in self._having(chosen, wanted)]
            if found:
                yield from found
                return

    def _having(self, chosen: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
        words = [number for term in chosen for number in self._index.word(term)]
        found = self._newest(words)
        yield from found
        if len(found) < _LOOKED_AT:
            return
        for term in chosen:
            yield from self._newest([*words, *self._index.titled(term)])
        for term in wanted:
            if term not in chosen:
                yield from self._newest([*words, *self._index.part(term)])

    def by_parts(self, wanted: Sequence[str], words: str) -> Iterator[str]:
        """The newest contexts that have any of these within a word, or in a text without spaces."""
        for term in (*wanted, *needles(words)[: _WORDS * 4]):
            yield from self._newest(self._index.part(term))

    def _newest(self, numbers: Sequence[int], limit: int = _LOOKED_AT) -> list[str]:
        return self._archives.with_terms(self._chat_key, numbers, limit)


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of the active context did: the snapshot that it became, if there was anything to keep;
    the one that is active now; how many messages it has; and the run that goes on with that.

    `was_archived`: that snapshot was there before, and keeps its title and reason. `why` says how a search
    ranked the one that is loaded.
    """

    chat_key: str
    archived: str | None = None
    was_archived: bool = False
    loaded: str | None = None
    messages: int = 0
    run_id: str | None = None
    why: str | None = None


def messages_of(room: Room, chat: Chat) -> list[Slot]:
    """The messages of the active context, in order."""
    return [] if chat.context_box_id is None else room.boxes.slots(chat.context_box_id)


def start_new(room: Room, chat_key: str, *, title: str | None = None, reason: str | None = None) -> Changed:
    """Archive the active context, and go on with an empty one. A snapshot that is as it was loaded is kept
    as it is. Raises NotFound for a chat that there is not."""
    _check_said(title=title, reason=reason)
    with room.transaction():
        chat = room.chats.lock(chat_key)
        now = room.database.now()
        archived = archive_active(room, chat, now, title=title, reason=reason)
        room.chats.write(emptied(chat, "new", now), now)
        return Changed(
            chat_key=chat_key,
            archived=archived,
            was_archived=archived is not None and chat.is_as_loaded,
            run_id=_run_of(chat, now),
        )


def clear(room: Room, chat_key: str) -> Changed:
    """Empty the active context without keeping it. Raises NotFound for a chat that there is not."""
    with room.transaction():
        chat = room.chats.lock(chat_key)
        now = room.database.now()
        room.chats.write(emptied(chat, "clear", now), now)
        return Changed(chat_key=chat_key, run_id=_run_of(chat, now))


def load(room: Room, chat_key: str, context_id: str | None = None, *, words: str | None = None) -> Changed:
    """Make a snapshot the active context: the one of this id, or that which the words find best. What was
    active is archived first.

    Raises NotFound for a chat or a snapshot that there is not, and where the words find none.
    """
    with room.transaction():
        chat = room.chats.lock(chat_key)
        now = room.database.now()
        best = _best(room, chat_key, context_id, words)
        archive = room.archives.get(chat_key, context_id or best.context_id)
        changed = Changed(
            chat_key=chat_key,
            loaded=archive.context_id,
            messages=archive.messages,
            run_id=_run_of(chat, now),
            why=None if context_id else best.why,
        )
        if chat.is_as_loaded and chat.context_id == archive.context_id:
            return changed
        archived = archive_active(room, chat, now)
        room.chats.write(_loaded(room, chat, archive, now), now)
        was_archived = archived is not None and chat.is_as_loaded
        return msgspec.structs.replace(changed, archived=archived, was_archived=was_archived)


def _best(room: Room, chat_key: str, context_id: str | None, words: str | None) -> Ranked:
    if context_id is not None:
        return Ranked(context_id=context_id, why="")
    if not (words or "").strip():
        raise InvalidInput("no snapshot is named", hint="give its id, or words of it with --query")
    found = find(room, chat_key, words or "", limit=1)
    return found[0]


def _loaded(room: Room, chat: Chat, archive: Archive, now: datetime) -> Chat:
    snapshot = room.boxes.get(archive.box_id)
    box = room.boxes.create(
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


def emptied(chat: Chat, by: ResetBy, now: datetime) -> Chat:
    """The head of a chat whose active context is empty from now on; to be written."""
    return msgspec.structs.replace(
        chat,
        context_id=None,
        context_box_id=None,
        context_created_at=None,
        loaded_from=None,
        window_start=chat.entries,
        version=chat.version + 1,
        reset_by=by,
        reset_at=now,
    )


def archive_active(
    room: Room, chat: Chat, now: datetime, *, title: str | None = None, reason: str | None = None
) -> str | None:
    """Archive what is active in a chat that is held, unless it is a snapshot as it stands.

    The id of that snapshot; None where nothing is active.
    """
    if chat.context_box_id is None or chat.context_id is None:
        return None
    if chat.is_as_loaded:
        return chat.context_id
    cards = [slot.card for slot in messages_of(room, chat) if slot.card is not None]
    archive = archive_of(
        chat.chat_key,
        chat.context_id,
        chat.context_box_id,
        cards,
        created_at=chat.context_created_at or now,
        archived_at=now,
        title=title,
        reason=reason,
    )
    keep(room, archive, cards)
    return archive.context_id


def archive_of(
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
    """The row of an archived context: its checkpoint is the last message of an assistant."""
    spoken = [index for index, card in enumerate(cards) if card.role == "assistant"]
    last = spoken[-1] if spoken else None
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


def keep(
    room: Room,
    archive: Archive,
    cards: Sequence[Card | CardDraft],
    *,
    layout: Mapping[str, Any] | None = None,
) -> bool:
    """Write an archived context, so that a search finds it; False where the chat has it already.

    `layout` is what the file that it was imported from says besides.
    """
    text = search_text(card_text(card.content) for card in cards)
    terms = IndexTerms(room.project_id, archive.chat_key).of_archive(archive, text)
    return room.archives.add(archive, search_text=text, terms=terms, layout=layout)


def with_round(room: Room, chat: Chat, card_ids: Sequence[str], now: datetime) -> Chat:
    """Append the messages of a round to the active context of a chat that is held: the head, to be written.

    A snapshot that goes on becomes a context of its own.
    """
    if chat.context_box_id is None:
        box_id = room.boxes.create(card_ids, title=f"context of {chat.chat_key}").box_id
        return msgspec.structs.replace(
            chat, context_id=new_id("ctx"), context_box_id=box_id, context_created_at=now
        )
    room.boxes.append(chat.context_box_id, card_ids, of_chat=True)
    if chat.is_as_loaded:
        return msgspec.structs.replace(chat, context_id=new_id("ctx"), context_created_at=now)
    return chat


def _run_of(chat: Chat, now: datetime) -> str | None:
    return chat.run_id if chat.is_busy(now) else None


def _check_said(**said: Any) -> None:
    for name, text in said.items():
        try:
            exact_json.check_storable(text, name)
        except exact_json.Unstorable as exc:
            raise InvalidInput(f"--{name}: {exc}", hint="leave that character out") from exc
        if text is not None and len(text) > WORDS_SIZE.value:
            what = f"has {len(text)} characters, not {WORDS_SIZE.value}"
            raise InvalidInput(f"--{name}: it {what}", hint="a few words are enough to find it again")
