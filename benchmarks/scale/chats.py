"""Chats: one of 100,000 entries beside one of 1,000, an archived context for each hundred.

Written by the operations themselves, a box of the transcript at a time.
"""

import random
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.scale.cards import PROJECT
from benchmarks.scale.measuring import TARGET, Measured, measure
from benchmarks.scale.sides import Side, Sides
from benchmarks.scale.telling import timed
from cardbox_cli.chat.contexts import append_round, new_archive, store_archive
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.chats import BOX_CARDS, Chat, entry_draft
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.store.connection.database import Database

SMALL, LARGE = 1_000, 100_000
RARE, FREQUENT, PIECE = "zephyr", "report", "eph"
_PER_CONTEXT = 100


_LINES = {
    "chat transcript, last 30": "chat transcript {key}",
    "chat show": "chat show {key}",
    "chat list, 10": "chat list {key} --limit 10",
    "chat load, a rare word": f"chat load {{key}} --query {RARE}",
    "chat load, in every context": f"chat load {{key}} --query {FREQUENT}",
    "chat load, a part of a word": f"chat load {{key}} --query {PIECE}",
    "chat send": "chat send {key} hello",
}


def measure_all(sides: Sides, _: Path) -> Iterator[Measured]:
    """The commands on chats: a long one on the large side, a short one on the other."""
    for side, entries in zip(sides, (SMALL, LARGE), strict=True):
        with timed(f"wrote a chat of {entries:,} entries"), Database.connect(side.target) as database:
            fill(database, entries)
    keys = [chat_key(entries) for entries in (SMALL, LARGE)]
    for name, line in _LINES.items():
        small, large = (partial(_run, *at, line) for at in zip(sides, keys, strict=True))
        yield measure(name, small, large, TARGET)


def _run(side: Side, key: str, line: str, _: int) -> None:
    side.run(line.format(key=key))


def chat_key(entries: int) -> str:
    """The chat of so many entries."""
    return f"telegram-chat-{entries}"


def fill(database: Database, entries: int) -> None:
    """Write a chat of so many entries. The rare word is in one archived context, the frequent one in all."""
    room = ChatStores(database, PROJECT)
    key = chat_key(entries)
    chosen = random.Random(entries)
    words = ["".join(chosen.choices("abcdefghijklmnoprstuvw", k=6)) for _ in range(4000)]
    for first in range(0, entries, BOX_CARDS):
        drafts = [
            entry_draft(key, "assistant" if number % 2 else "user", _text(number, chosen, words))
            for number in range(first, min(first + BOX_CARDS, entries))
        ]
        with room.transaction():
            chat = room.chats.append(room.chats.lock_or_create(key), drafts)
            for start in range(0, len(drafts), _PER_CONTEXT):
                _archive(room, chat, drafts[start : start + _PER_CONTEXT], first + start)
            room.chats.write(msgspec.structs.replace(chat, answered=chat.entries), database.now())
    with room.transaction():
        chat = room.chats.lock(key)
        last = room.chats.entries(chat, entries - 20)
        chat = append_round(room, chat, [entry.card_id for entry in last], database.now())
        room.chats.write(chat, database.now())
    database.connection.execute("VACUUM ANALYZE")


def _text(number: int, chosen: random.Random, words: list[str]) -> str:
    rare = f" {RARE}" if number == _PER_CONTEXT * 3 else ""
    frequent = f" {FREQUENT}" if number % _PER_CONTEXT == 0 else ""
    return " ".join(chosen.choices(words, k=12)) + rare + frequent


def _archive(room: ChatStores, chat: Chat, drafts: list[CardDraft], number: int) -> None:
    box = room.boxes.create([draft.card_id for draft in drafts])
    moment = room.database.now() - timedelta(days=30) + timedelta(seconds=number)
    archive = new_archive(
        chat.chat_key,
        f"ctx_{number:032x}",
        box.box_id,
        drafts,
        created_at=moment,
        archived_at=moment,
        title=f"Context {number}",
        reason=None,
    )
    store_archive(room, archive, drafts)
