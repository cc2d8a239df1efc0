"""How many tokens a text is, without a network: exactly where the model's tokenizer is at hand, else about.

OpenAI's tokenizers come with the extra `tokens` and are loaded when one of their models is asked about. For
Claude and for models that are not known here nothing exact exists offline. Which texts make up a request, and
what a provider adds to them, is for `context/costs.py` to say.
"""

import re
import string
from collections.abc import Callable
from functools import cache
from hashlib import blake2b

import msgspec

from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, CardDraft, card_text

ESTIMATOR = "estimate-2"

# What a character costs: ASCII letters and blanks little, for words are tokens; digits and signs much, for
# they are cut small; letters of other alphabets; beyond U+2000 Chinese, Japanese, Korean, emoji and quotes.
_LETTER, _SIGN, _FOREIGN, _WIDE = 1 / 5, 3 / 5, 1 / 3, 4 / 5
_SIGNS = (string.digits + string.punctuation).encode()
_WIDE_ONES = re.compile("[\u2000-\U0010ffff]+")

# encoding -> the bare names of its models
_ENCODINGS = {
    "o200k_base": re.compile(
        r"(gpt-4o|chatgpt-4o|gpt-4\.1|gpt-4\.5|gpt-5(\.\d+)?|gpt-oss|o1|o3|o4)([-@:].*)?"
    ),
    "cl100k_base": re.compile(r"gpt-(3\.5|35|4)([-@:].*)?"),
}

# How many counts are remembered; the texts beyond so many characters by their digest.
_REMEMBERED = 20_000
_LONG = 1_000


class Tokenizer(msgspec.Struct, frozen=True):
    """What counts the tokens of a text: 0 only for the empty one. `exact` if the provider counts as many."""

    name: str
    exact: bool
    count: Callable[[str], int]


def tokenizer_for(model: str | None) -> Tokenizer:
    """The tokenizer of a model, if it is known by its name and the extra is installed; else the estimate."""
    name = bare_name(model)
    encoding = next((encoding for encoding, names in _ENCODINGS.items() if names.fullmatch(name)), None)
    return ESTIMATE if encoding is None else _exact(encoding)


def bare_name(model: str | None) -> str:
    """A model's name without what a gateway or a fine-tuning puts before it, such as `openai/` or `ft:`."""
    return (model or "").rpartition("/")[2].removeprefix("ft:")


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` is for a current model; `docs/tokens.md` has by how much it errs."""
    if not text:
        return 0
    plain = text.encode("ascii", "ignore")
    letters = len(plain.translate(None, _SIGNS))
    cost = letters * _LETTER + (len(plain) - letters) * _SIGN
    if len(plain) < len(text):
        wide = len(text) - len(_WIDE_ONES.sub("", text))
        cost += wide * _WIDE + (len(text) - len(plain) - wide) * _FOREIGN
    return max(1, round(cost))


ESTIMATE = Tokenizer(ESTIMATOR, False, estimate_tokens)


def card_tokens(card: Card | CardDraft, tokenizer: Tokenizer = ESTIMATE) -> int:
    """How many tokens a card says: its text and its tool calls."""
    calls = exact_json.encode(card.tool_calls).decode() if card.tool_calls else ""
    return tokenizer.count(card_text(card.content) + calls)


@cache
def _exact(encoding: str) -> Tokenizer:
    try:
        from splintr import Tokenizer as Vocabulary
    except ImportError:
        return ESTIMATE
    # Ordinary: what looks like a special token is text, as it is to the API.
    return Tokenizer(encoding, True, _remembering(Vocabulary.from_pretrained(encoding).encode_ordinary))


def _remembering(encode: Callable[[str], list[int]]) -> Callable[[str], int]:
    counts: dict[str | bytes, int] = {}

    def count(text: str) -> int:
        key = text if len(text) <= _LONG else blake2b(_utf8(text), digest_size=16).digest()
        found = counts.get(key)
        if found is None:
            if len(counts) >= _REMEMBERED:
                counts.clear()
            found = counts[key] = len(encode(_utf8(text).decode()))
        return found

    return count


def _utf8(text: str) -> bytes:
    """The text as it can be sent: a lone surrogate, which UTF-8 has no place for, as a question mark."""
    return text.encode("utf-8", "replace")
