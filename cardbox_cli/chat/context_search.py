"""Which archived context a few words mean: a ranking over titles, reasons and messages, and why it is so.

Pure. The database narrows the candidates, by the `terms` of a query in what is `folded`; what is ranked here
is what it brings. Scripts that put no space between words are found by what stands within a text.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Literal
from zlib import crc32

import msgspec

from cardbox_cli.model.chats import Archive

Place = Literal["title", "reason", "messages"]
PLACES: tuple[Place, ...] = ("title", "reason", "messages")

# Letters of scripts that put no space between words, or hang endings onto them: Thai, Lao, Myanmar, Khmer,
# Korean, and those of East Asia, the rarer ideographs beyond the first plane among them.
_UNSPACED = "".join(
    (
        "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u9fff",
        "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff",
    )
)
_TERM = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")

# Which part of the pairs of characters of a word without spaces a text must have, to be like it.
_ENOUGH = 0.5


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An archived context as a search sees it. `messages` is the text of all of them."""

    context_id: str
    title: str
    reason: str
    messages: str
    archived_at: datetime


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A context that a search found: which terms of the query it has as words, and which within words.

    Each term by the first place that has it.
    """

    context_id: str
    terms: list[str]
    words: dict[str, Place]
    parts: dict[str, Place]
    archived_at: datetime

    @property
    def why(self) -> str:
        """How it ranks, in words."""
        number = f"{len(self.words) + len(self.parts)} of {len(self.terms)} " + (
            "word" if len(self.terms) == 1 else "words"
        )
        found = [*_in_words(self.words, ""), *_in_words(self.parts, "a part like ")]
        return f"{number}: {'; '.join(found)}"


def _in_words(found: dict[str, Place], prefix: str) -> Iterator[str]:
    for place in PLACES:
        terms = [f"{prefix}{term!r}" for term, where in found.items() if where == place]
        if terms:
            yield f"{', '.join(terms)} in its {place}"


def folded(text: str) -> str:
    """`text` as searches compare it: without case, and without widths and ligatures."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def terms(query: str) -> list[str]:
    """The distinct words that a query looks for, folded: split also where its script changes.

    What has no letter or digit at all, such as an emoji, is looked for as it stands.
    """
    found = (each for word in folded(query).split() for each in _TERM.findall(word) or [word])
    return list(dict.fromkeys(found))


def needles(query: str) -> list[str]:
    """What a text must have one of, folded, to be ranked: terms, and the pairs of characters of long ones."""
    found = (each for term in terms(query) for each in (_pairs(term) if _is_long(term) else [term]))
    return list(dict.fromkeys(found))


def ranked(candidates: Iterable[Candidate], query: str) -> list[Found]:
    """The contexts that have anything of a query, the best first.

    More distinct words, then more within words, then more in titles, then in reasons, then the newest.
    """
    wanted = [_Term.of(term) for term in terms(query)]
    found = (_found(candidate, wanted) for candidate in candidates)
    return sorted((each for each in found if each.words or each.parts), key=_order, reverse=True)


def _order(found: Found) -> tuple[int, int, int, int, datetime, str]:
    places = [*found.words.values(), *found.parts.values()]
    return (
        len(found.words),
        len(found.parts),
        places.count("title"),
        places.count("reason"),
        found.archived_at,
        found.context_id,
    )


class _Term(msgspec.Struct, frozen=True):
    """A term and what finds it: as a word, and within words. Of a long one without spaces, most of it."""

    text: str
    word: re.Pattern[str]
    pairs: list[str]

    @classmethod
    def of(cls, text: str) -> "_Term":
        before = r"(?<![^\W_])" if _is_spaced(text[0]) else ""
        behind = r"(?![^\W_])" if _is_spaced(text[-1]) else ""
        return cls(
            text, re.compile(before + re.escape(text) + behind), _pairs(text) if _is_long(text) else []
        )

    def is_word_of(self, text: str) -> bool:
        return self.text in text and self.word.search(text) is not None

    def is_part_of(self, text: str) -> bool:
        if self.pairs:
            return sum(pair in text for pair in self.pairs) >= len(self.pairs) * _ENOUGH
        return len(self.text) > 1 and self.text in text


def _is_spaced(character: str) -> bool:
    return character.isalnum() and not _IS_UNSPACED.match(character)


def _is_long(term: str) -> bool:
    """Whether a term may be several words in one."""
    return len(term) > 2 and _IS_UNSPACED.match(term) is not None


def _pairs(term: str) -> list[str]:
    """Each two characters of a term that stand side by side."""
    return list(dict.fromkeys(map("".join, pairwise(term))))


def _found(candidate: Candidate, wanted: Sequence[_Term]) -> Found:
    texts: list[tuple[Place, str]] = [(place, folded(getattr(candidate, place))) for place in PLACES]
    words: dict[str, Place] = {}
    parts: dict[str, Place] = {}
    for term in wanted:
        if place := next((place for place, text in texts if term.is_word_of(text)), None):
            words[term.text] = place
        elif place := next((place for place, text in texts if term.is_part_of(text)), None):
            parts[term.text] = place
    return Found(
        context_id=candidate.context_id,
        terms=[term.text for term in wanted],
        words=words,
        parts=parts,
        archived_at=candidate.archived_at,
    )


# By what the database finds archived contexts for a search: numbers that stand for words and pieces of them.
#
# Pure. A number is a hash of a piece of text together with the project and the chat, so that an index on
# numbers alone holds apart what belongs apart. What has the numbers of a query may still lack its words, by a
# chance; `search.py` looks at the texts.


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
        return [self._number("w", term)] if _is_spaced_script(term) else self.part(term)

    def titled(self, term: str) -> list[int]:
        """What a context has whose title has this term."""
        return [self._number("t", term)]

    def part(self, term: str) -> list[int]:
        """What a context has that has this term within a word."""
        return [self._number("p", piece) for piece in _pieces_asked(term)]

    def _all_of(self, term: str) -> Iterator[int]:
        if _is_spaced_script(term):
            yield self._number("w", term)
        for size in range(1 if not _is_spaced_script(term) else 2, _PIECE + 1):
            for start in range(len(term) - size + 1):
                yield self._number("p", term[start : start + size])

    def _number(self, kind: str, text: str) -> int:
        number = crc32(f"{kind}{text}".encode("utf-8", "surrogatepass"), self._seed)
        return number - (1 << 32) if number >= 1 << 31 else number


def search_text(messages: Iterable[str]) -> str:
    """The text of messages as a search sees it: all of it, or where that is long its end."""
    return "\n".join(messages)[-SEARCHED:]


def _is_spaced_script(term: str) -> bool:
    return _SPACED.fullmatch(term) is not None


def _pieces_asked(term: str) -> list[str]:
    size = min(len(term), _PIECE)
    return list(dict.fromkeys(term[start : start + size] for start in range(len(term) - size + 1)))
