"""The words of a search, and patterns that mark them in a text. The database decides what matches."""

import re
from collections.abc import Sequence

# Number of characters shown before the first match.
_CONTEXT_CHARACTERS = 24


def search_words(query: str) -> list[str]:
    """Return the words that a search looks for, without words that it excludes and without `or`."""
    included = re.sub(r'(?<!\S)-("[^"]*"|\S+)', " ", query).replace('"', " ")
    return [word for word in included.split() if word.casefold() != "or"]


def word_pattern(words: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern of these words, ignoring case. In scripts with spaces, it matches only whole words."""
    if not words:
        return None
    return re.compile("|".join(map(_word, sorted(words, key=len, reverse=True))), re.IGNORECASE)


def _word(word: str) -> str:
    before = r"(?<![^\W_])" if _is_spaced(word[0]) else ""
    behind = r"(?![^\W_])" if _is_spaced(word[-1]) else ""
    return before + re.escape(word) + behind


def _is_spaced(character: str) -> bool:
    """Return whether a letter or digit is of a script with spaces between words: not an East Asian one."""
    return character.isalnum() and not "\u1100" <= character <= "\uffff"


def skip_to_match(text: str, pattern: re.Pattern[str] | None) -> str:
    """Return the text from shortly before the first match, or all of it if nothing matches."""
    place = pattern.search(text) if pattern else None
    if place is None or place.start() <= _CONTEXT_CHARACTERS:
        return text
    start = place.start() - _CONTEXT_CHARACTERS
    space = text.find(" ", start, place.start())
    return "…" + text[space + 1 if space >= 0 else start :]
