"""Token counts without a network, by the tokenizers of the extra `tokens` or else by an estimate."""

import re
import string
from collections.abc import Callable
from functools import cache
from hashlib import blake2b

import msgspec

from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, CardDraft, card_text

ESTIMATOR = "estimate-2"

# The estimated number of tokens of a character. ASCII letters and blanks cost little, because whole words are
# tokens. Digits and signs cost much, because tokenizers split them. The third value is for letters of other
# alphabets. The last value is for characters above U+2000: East Asian scripts, emoji and quotes.
_LETTER, _SIGN, _FOREIGN, _WIDE = 1 / 5, 3 / 5, 1 / 3, 4 / 5
_SIGNS = (string.digits + string.punctuation).encode()
# The pattern is compiled at its first use, because that takes longer than many commands.
_WIDE_CHARACTERS = "[\u2000-\U0010ffff]+"

# The number of cached counts, and the length above which the cache key is a digest of the text.
_MAX_CACHED = 20_000
_MAX_KEY_CHARACTERS = 1_000


class Tokenizer(msgspec.Struct, frozen=True):
    """A counter of tokens. Only "" has 0 tokens. `exact` means that it counts as the provider does."""

    name: str
    exact: bool
    count: Callable[[str], int]


def bare_name(model: str | None) -> str:
    """Return a model's name without the prefix of a gateway (`azure/`) or of a fine-tuned model (`ft:`)."""
    return (model or "").rpartition("/")[2].removeprefix("ft:")


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text` for a current model. `docs/reference/tokens.md` states the error."""
    if not text:
        return 0
    plain = text.encode("ascii", "ignore")
    letters = len(plain.translate(None, _SIGNS))
    cost = letters * _LETTER + (len(plain) - letters) * _SIGN
    if len(plain) < len(text):
        wide = len(text) - len(re.sub(_WIDE_CHARACTERS, "", text))
        cost += wide * _WIDE + (len(text) - len(plain) - wide) * _FOREIGN
    return max(1, round(cost))


ESTIMATING_TOKENIZER = Tokenizer(ESTIMATOR, False, estimate_tokens)


def card_tokens(card: Card | CardDraft, tokenizer: Tokenizer = ESTIMATING_TOKENIZER) -> int:
    """Return the number of tokens of a card's text and tool calls."""
    calls = exact_json.encode(card.tool_calls).decode() if card.tool_calls else ""
    return tokenizer.count(card_text(card.content) + calls)


@cache
def encoding_tokenizer(encoding: str) -> Tokenizer:
    """Return the tokenizer of an encoding such as `o200k_base`, or the estimate if it is not installed."""
    try:
        from splintr import Tokenizer as Vocabulary
    except ImportError:
        return ESTIMATING_TOKENIZER
    # `encode_ordinary` treats special tokens in a text as plain text, as the API does.
    return Tokenizer(encoding, True, _cache_counts(Vocabulary.from_pretrained(encoding).encode_ordinary))


def _cache_counts(encode: Callable[[str], list[int]]) -> Callable[[str], int]:
    counts: dict[str | bytes, int] = {}

    def count(text: str) -> int:
        key = text if len(text) <= _MAX_KEY_CHARACTERS else blake2b(_utf8(text), digest_size=16).digest()
        tokens = counts.get(key)
        if tokens is None:
            if len(counts) >= _MAX_CACHED:
                counts.clear()
            tokens = counts[key] = len(encode(_utf8(text).decode()))
        return tokens

    return count


def _utf8(text: str) -> bytes:
    """Encode the text in UTF-8. Replaces lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text.encode("utf-8", "replace")
