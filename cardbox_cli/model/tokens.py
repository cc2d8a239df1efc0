"""How many tokens a text is, without a network: exactly where the model's tokenizer is at hand, else about.

The tokenizers of the extra `tokens` are loaded when one is asked for. Which one counts for a model is known
to its provider (`context/providers`), which texts make up a request to `context/inspection/costs`.
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
# Compiled at its first use: that takes longer than many a command.
_WIDE_ONES = "[\u2000-\U0010ffff]+"

# How many counts are remembered; the texts beyond so many characters by their digest.
_REMEMBERED = 20_000
_LONG = 1_000


class Tokenizer(msgspec.Struct, frozen=True):
    """What counts the tokens of a text: 0 only for the empty one. `exact` if the provider counts as many."""

    name: str
    exact: bool
    count: Callable[[str], int]


def bare_name(model: str | None) -> str:
    """A model's name without what a gateway or a fine-tuning puts before it, such as `azure/` or `ft:`."""
    return (model or "").rpartition("/")[2].removeprefix("ft:")


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` is for a current model; `docs/tokens.md` has by how much it errs."""
    if not text:
        return 0
    plain = text.encode("ascii", "ignore")
    letters = len(plain.translate(None, _SIGNS))
    cost = letters * _LETTER + (len(plain) - letters) * _SIGN
    if len(plain) < len(text):
        wide = len(text) - len(re.sub(_WIDE_ONES, "", text))
        cost += wide * _WIDE + (len(text) - len(plain) - wide) * _FOREIGN
    return max(1, round(cost))


ESTIMATE = Tokenizer(ESTIMATOR, False, estimate_tokens)


def card_tokens(card: Card | CardDraft, tokenizer: Tokenizer = ESTIMATE) -> int:
    """How many tokens a card says: its text and its tool calls."""
    calls = exact_json.encode(card.tool_calls).decode() if card.tool_calls else ""
    return tokenizer.count(card_text(card.content) + calls)


@cache
def encoding_tokenizer(encoding: str) -> Tokenizer:
    """The tokenizer of an encoding such as `o200k_base` if the extra is installed, else the estimate."""
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
