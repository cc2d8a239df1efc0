"""How cards are found by what they say, and which index finds few of many."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from cardbox_cli.model import exact_json
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.queries import query
from cardbox_cli.store.connection.short_ids import like_escape

# Scripts that are written without spaces, where a word search finds nothing: kana, Han, Hangul, fullwidth.
_UNSPACED = (
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)

# Those of them whose pairs of characters are indexed: all but punctuation and what has upper and lower case.
_PAIRED = _UNSPACED.replace("\uff00-\uffef", "\uff66-\uffdc")

WORD_INDEX, BIGRAM_INDEX = "public.idx_cards_text", "public.idx_cards_bigrams"


class Finder(NamedTuple):
    """The name of an index, and the query of a page of what it finds."""

    name: str
    listing: str


# By the field of a filter that it serves, the rarer ones first. A database that others made may have none.
FINDERS = {
    "step_id": Finder("public.idx_cards_step", "list_few_cards"),
    "trace_id": Finder("public.idx_cards_trace", "list_few_cards"),
}


def index_text(database: Database, announce: Callable[[str], None] = lambda text: None) -> list[str]:
    """Build the indexes behind searches, without blocking writers; their names. Replaces broken attempts.

    The index for texts without spaces needs a function that cbx makes together with its table of versions.
    """
    from cardbox_cli.store.migrations.upgrade import build_index

    built = [WORD_INDEX]
    build_index(database, WORD_INDEX, "public.cards", query("index_text"), announce)
    if database.value("knows_bigrams"):
        build_index(database, BIGRAM_INDEX, "public.cards", query("index_bigrams"), announce)
        built.append(BIGRAM_INDEX)
    else:
        announce(
            "Chinese, Japanese and Korean stay without an index: run `cbx db upgrade` first, and this again"
        )
    return [name.removeprefix("public.") for name in built]


def text_search(text: str | None) -> dict[str, Any]:
    """Words where words are spaced; else each piece of `text`, as a string and its JSON hold it."""
    nothing = {"words": None, "patterns": None, "json_patterns": None}
    if text is None:
        return nothing
    if not re.search(_UNSPACED, text):
        return {**nothing, "words": text}
    pieces = text.split()
    in_json = [exact_json.encode(piece).decode()[1:-1] for piece in pieces]
    return {**nothing, "patterns": _substrings(pieces), "json_patterns": _substrings(in_json)}


def finder(text: str) -> Finder | None:
    """What finds the cards that say this; None where no index does."""
    if not re.search(_UNSPACED, text):
        return Finder(WORD_INDEX, "list_few_cards")
    return Finder(BIGRAM_INDEX, "list_few_cards_by_bigrams") if re.search(_PAIRED, text) else None


def _substrings(pieces: list[str]) -> list[str]:
    return [f"%{like_escape(piece)}%" for piece in pieces]
