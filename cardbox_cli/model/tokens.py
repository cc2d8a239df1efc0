"""Token counts without a network: an estimate, always shown with a `~`.

English text runs at about four characters per token, text in Chinese, Japanese or Korean at about one
and a half per character written in it. Good to some 20 %; exact counting is a later, optional part.
"""

from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, CardDraft, card_text

ESTIMATOR = "estimate-1"


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` is for a current model; 0 only for the empty text."""
    if not text:
        return 0
    if text.isascii():
        return max(1, round(len(text) / 4))
    wide = sum(1 for character in text if character >= "⺀")
    return max(1, round((len(text) - wide) / 4 + wide * 0.7))


def card_tokens(card: Card | CardDraft) -> int:
    """About how many tokens a card costs: its text and its tool calls."""
    calls = exact_json.encode(card.tool_calls).decode() if card.tool_calls else ""
    return estimate_tokens(card_text(card.content) + calls)
