"""The search for an archived context by words: a ranking over titles, reasons and messages.

Pure. The database narrows the candidates by the numbers of `ContextIndex`, and `rank` sorts what it returns.
In scripts without spaces between words, a term is found anywhere within a text.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Literal
from zlib import crc32

import msgspec

from cardbox_cli.model.chats import Archive, SearchCandidate
from cardbox_cli.model.ids import unique
from cardbox_cli.text.quantities import format_count

Place = Literal["title", "reason", "messages"]
PLACES: tuple[Place, ...] = ("title", "reason", "messages")

# Letters of scripts that put no space between words, or attach endings to them. These are Thai, Lao, Myanmar,
# Khmer, Korean and East Asian scripts, including the rarer ideographs beyond the first plane.
_UNSPACED = "".join(
    (
        "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u9fff",
        "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff",
    )
)
_TERM = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")

# The share of a long term's character pairs that a text must contain to match it.
_MIN_PAIR_SHARE = 0.5


class ContextMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A context that matches a query.

    `words` maps each term that is a word of the context to the first place with that word. `parts` does the
    same for the terms that occur only within words.
    """

    context_id: str
    terms: list[str]
    words: dict[str, Place]
    parts: dict[str, Place]
    archived_at: datetime

    @property
    def why(self) -> str:
        """The explanation of its rank, for example "1 of 2 words: 'tax' in its title"."""
        number = f"{len(self.words) + len(self.parts)} of {format_count(len(self.terms), 'word')}"
        matches = [*_describe_matches(self.words, ""), *_describe_matches(self.parts, "a part like ")]
        return f"{number}: {'; '.join(matches)}"


def _describe_matches(matches: dict[str, Place], prefix: str) -> Iterator[str]:
    for place in PLACES:
        terms = [f"{prefix}{term!r}" for term, where in matches.items() if where == place]
        if terms:
            yield f"{', '.join(terms)} in its {place}"


def fold(text: str) -> str:
    """Normalize a text for comparison: case, character widths and ligatures do not matter."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def split_terms(query: str) -> list[str]:
    """Split a query into its distinct words, folded. A change of script also separates words.

    A word without any letter or digit, such as an emoji, is searched for unchanged.
    """
    return unique(each for word in fold(query).split() for each in _TERM.findall(word) or [word])


def search_strings(query: str) -> list[str]:
    """Return the folded strings of which a text must contain one to be ranked.

    These are the terms of the query; long terms of scripts without spaces are cut into pairs of characters.
    """
    terms = split_terms(query)
    return unique(each for term in terms for each in (_pairs(term) if _is_long(term) else [term]))


def rank(candidates: Iterable[SearchCandidate], query: str) -> list[ContextMatch]:
    """Return the contexts that match any term of a query, the best first.

    The order is by matching words, then matches within words, then matches in titles, in reasons, then age.
    """
    terms = [_Term.parse(term) for term in split_terms(query)]
    matches = (_match(candidate, terms) for candidate in candidates)
    return sorted((each for each in matches if each.words or each.parts), key=_order, reverse=True)


def _order(match: ContextMatch) -> tuple[int, int, int, int, datetime, str]:
    places = [*match.words.values(), *match.parts.values()]
    in_title, in_reason = places.count("title"), places.count("reason")
    return len(match.words), len(match.parts), in_title, in_reason, match.archived_at, match.context_id


class _Term(msgspec.Struct, frozen=True):
    """A term of a query. `pairs` is empty unless the term is long and its script has no spaces."""

    text: str
    word: re.Pattern[str]
    pairs: list[str]

    @classmethod
    def parse(cls, text: str) -> "_Term":
        before = r"(?<![^\W_])" if _is_spaced(text[0]) else ""
        behind = r"(?![^\W_])" if _is_spaced(text[-1]) else ""
        word = re.compile(before + re.escape(text) + behind)
        return cls(text, word, _pairs(text) if _is_long(text) else [])

    def is_word_of(self, text: str) -> bool:
        return self.text in text and self.word.search(text) is not None

    def is_part_of(self, text: str) -> bool:
        if self.pairs:
            return sum(pair in text for pair in self.pairs) >= len(self.pairs) * _MIN_PAIR_SHARE
        return len(self.text) > 1 and self.text in text


def _is_spaced(character: str) -> bool:
    return character.isalnum() and not _IS_UNSPACED.match(character)


def _is_long(term: str) -> bool:
    """Return whether a term of a script without spaces may be several words."""
    return len(term) > 2 and _IS_UNSPACED.match(term) is not None


def _pairs(term: str) -> list[str]:
    """Return the distinct pairs of adjacent characters of a term."""
    return unique(map("".join, pairwise(term)))


def _match(candidate: SearchCandidate, terms: Sequence[_Term]) -> ContextMatch:
    candidate_texts = (candidate.title or "", candidate.reason or "", candidate.search_text)
    texts = list(zip(PLACES, map(fold, candidate_texts), strict=True))
    words: dict[str, Place] = {}
    parts: dict[str, Place] = {}
    for term in terms:
        if place := next((place for place, text in texts if term.is_word_of(text)), None):
            words[term.text] = place
        elif place := next((place for place, text in texts if term.is_part_of(text)), None):
            parts[term.text] = place
    return ContextMatch(
        context_id=candidate.context_id,
        terms=[term.text for term in terms],
        words=words,
        parts=parts,
        archived_at=candidate.archived_at,
    )


# --- the numbers by which the database narrows a search.
#
# A number is a hash of a word, or of a chunk of it, seeded by the project and the chat. So one index over all
# numbers keeps projects and chats apart. Hashes collide: a context with the numbers of a query may lack its
# words, and `rank` drops it.

# The number of characters at the end of a context's messages that a search covers.
MAX_SEARCHED_CHARACTERS = 100_000
# The length of the chunks by which a part of a word is found.
_MAX_CHUNK = 3
_SPACED = re.compile(r"[\u0000-\u0dff\u0f00-\u0fff\u10a0-\u10ff\u1200-\u177f\u1800-\u2e7f]+")


class ContextIndex:
    """The numbers that index the archived contexts of one chat."""

    def __init__(self, project_id: str, chat_key: str) -> None:
        self._seed = crc32(f"{project_id}\0{chat_key}\0".encode())

    def archive_numbers(self, archive: Archive, text: str) -> list[int]:
        """Return the numbers of an archived context: of its title, its reason, and its messages' `text`."""
        title_terms = split_terms(archive.title or "")
        terms = {*title_terms, *split_terms(archive.reason or ""), *split_terms(text)}
        numbers = {number for term in terms for number in self._word_and_parts(term)}
        return sorted(numbers | {self._number("t", term) for term in title_terms})

    def word_numbers(self, term: str) -> list[int]:
        """Return the numbers of all contexts that contain this term as a word."""
        return [self._number("w", term)] if _is_spaced_script(term) else self.part_numbers(term)

    def title_numbers(self, term: str) -> list[int]:
        """Return the numbers of every context with this term in its title."""
        return [self._number("t", term)]

    def part_numbers(self, term: str) -> list[int]:
        """Return the numbers of every context that has this term within a word."""
        return [self._number("p", chunk) for chunk in _chunks(term)]

    def _word_and_parts(self, term: str) -> Iterator[int]:
        if _is_spaced_script(term):
            yield self._number("w", term)
        for size in range(2 if _is_spaced_script(term) else 1, _MAX_CHUNK + 1):
            for start in range(len(term) - size + 1):
                yield self._number("p", term[start : start + size])

    def _number(self, kind: str, text: str) -> int:
        number = crc32(f"{kind}{text}".encode("utf-8", "surrogatepass"), self._seed)
        return number - (1 << 32) if number >= 1 << 31 else number


def join_search_text(messages: Iterable[str]) -> str:
    """Join the texts of messages for a search. A long text is cut to its end."""
    return "\n".join(messages)[-MAX_SEARCHED_CHARACTERS:]


def _is_spaced_script(term: str) -> bool:
    return _SPACED.fullmatch(term) is not None


def _chunks(term: str) -> list[str]:
    size = min(len(term), _MAX_CHUNK)
    return unique(term[start : start + size] for start in range(len(term) - size + 1))
