"""Where the words of a search stand in a text. Pure; what a search finds is for the database to say."""

import re
from collections.abc import Sequence

# How much of the text stands before the first word that is found.
_BEFORE = 24


def searched_words(query: str) -> list[str]:
    """The words that a search looks for: not those that it excludes, nor `or`."""
    wanted = re.sub(r'(?<!\S)-("[^"]*"|\S+)', " ", query).replace('"', " ")
    return [word for word in wanted.split() if word.casefold() != "or"]


def pattern(words: Sequence[str]) -> re.Pattern[str] | None:
    """What finds each of these words, in any case: whole ones, where a script puts spaces between words."""
    if not words:
        return None
    return re.compile("|".join(map(_word, sorted(words, key=len, reverse=True))), re.IGNORECASE)


def _word(word: str) -> str:
    before = r"(?<![^\W_])" if _SPACED.match(word[0]) else ""
    behind = r"(?![^\W_])" if _SPACED.match(word[-1]) else ""
    return before + re.escape(word) + behind


# A letter or digit, save of the scripts of East Asia. To a search an underscore ends a word.
_SPACED = re.compile("[^\\W_\u1100-\uffff]")


def around(text: str, found: re.Pattern[str] | None) -> str:
    """The text from shortly before the first place that is found; all of it where none is."""
    place = found.search(text) if found else None
    if place is None or place.start() <= _BEFORE:
        return text
    start = place.start() - _BEFORE
    space = text.find(" ", start, place.start())
    return "…" + text[space + 1 if space >= 0 else start :]
