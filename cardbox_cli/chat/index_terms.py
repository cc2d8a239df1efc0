"""By what the database finds archived contexts for a search: numbers that stand for words and pieces of them.

Pure. A number is a hash of a piece of text together with the project and the chat, so that an index on
numbers alone holds apart what belongs apart. What has the numbers of a query may still lack its words, by a
chance; `search.py` looks at the texts.
"""

import re
from collections.abc import Iterable, Iterator
from zlib import crc32

from cardbox_cli.chat.search import terms
from cardbox_cli.model.chats import Archive

# Characters of the messages of a context that a search finds it by, from its end.
SEARCHED = 100_000
# How long the pieces are at most that words are found by where only a part of them is given.
_PIECE = 3
_SPACED = re.compile(r"[\u0000-\u0dff\u0f00-\u0fff\u10a0-\u10ff\u1200-\u177f\u1800-\u2e7f]+")


class IndexTerms:
    """The numbers of one chat's texts."""

    def __init__(self, project_id: str, chat_key: str) -> None:
        self._seed = crc32(f"{project_id}\0{chat_key}\0".encode())

    def of_archive(self, archive: Archive, text: str) -> list[int]:
        """What an archived context is found by: its title, its reason, and the `text` of its messages."""
        numbers: set[int] = set()
        for text_of_part in (archive.title or "", archive.reason or "", text):
            for term in terms(text_of_part):
                numbers.update(self._all_of(term))
        for term in terms(archive.title or ""):
            numbers.add(self._number("t", term))
        return sorted(numbers)

    def word(self, term: str) -> list[int]:
        """What a context has that has this term as a word."""
        return [self._number("w", term)] if _is_spaced(term) else self.part(term)

    def titled(self, term: str) -> list[int]:
        """What a context has whose title has this term."""
        return [self._number("t", term)]

    def part(self, term: str) -> list[int]:
        """What a context has that has this term within a word."""
        return [self._number("p", piece) for piece in _pieces_asked(term)]

    def _all_of(self, term: str) -> Iterator[int]:
        if _is_spaced(term):
            yield self._number("w", term)
        for size in range(1 if not _is_spaced(term) else 2, _PIECE + 1):
            for start in range(len(term) - size + 1):
                yield self._number("p", term[start : start + size])

    def _number(self, kind: str, text: str) -> int:
        number = crc32(f"{kind}{text}".encode("utf-8", "surrogatepass"), self._seed)
        return number - (1 << 32) if number >= 1 << 31 else number


def search_text(messages: Iterable[str]) -> str:
    """The text of messages as a search sees it: all of it, or where that is long its end."""
    return "\n".join(messages)[-SEARCHED:]


def _is_spaced(term: str) -> bool:
    return _SPACED.fullmatch(term) is not None


def _pieces_asked(term: str) -> list[str]:
    size = min(len(term), _PIECE)
    return list(dict.fromkeys(term[start : start + size] for start in range(len(term) - size + 1)))
