"""Which archived contexts of a chat a few words find. The database narrows the candidates, newest first, and
never brings more than a few; `search.py` ranks these by their texts.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from cardbox_cli.chat.index_terms import IndexTerms
from cardbox_cli.chat.room import Room
from cardbox_cli.chat.search import Candidate, needles, ranked, terms
from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.limits import WORDS_SIZE
from cardbox_cli.model.ids import unique
from cardbox_cli.text import argument

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
