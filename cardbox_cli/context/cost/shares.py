"""What each card takes of a series of requests."""

from collections import Counter

import msgspec

from cardbox_cli.context.cost.account import Account, SentPart
from cardbox_cli.model.cards import card_text


class CardShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a card takes: its `tokens` once, how often it was sent, and the tokens of all its sendings."""

    card_id: str | None
    box_id: str | None
    position: int | None
    layer: str
    type: str
    tool: str
    tokens: int
    tokens_exact: bool
    sends: int
    total: int
    share: float
    preview: str


def card_shares(account: Account) -> list[CardShare]:
    """What each card takes, the most first; a layer's text counts for the card that made it, and all
    sendings of a card together, also those behind a break."""
    of_all = account.tokens
    sends: Counter[tuple[object, ...]] = Counter()
    for part in account.parts:
        sends[_place(part)] += part.sends
    shares = [
        CardShare(
            card_id=part.card_id,
            box_id=part.box_id or None,
            position=part.position,
            layer=part.layer,
            type=part.type,
            tool=part.tool,
            tokens=part.tokens,
            tokens_exact=not part.estimated,
            sends=sent,
            total=part.tokens * sent,
            share=round(part.tokens * sent / of_all, 4) if of_all else 0.0,
            preview=_preview(part),
        )
        for part in {_place(part): part for part in reversed(account.parts)}.values()
        for sent in [sends[_place(part)]]
    ]
    return sorted(shares, key=lambda share: -share.total)


def _place(part: SentPart) -> tuple[object, ...]:
    """What messages of one card have in common; of what no card made each is its own."""
    return (part.card_id, part.layer, part.tokens) if part.card_id else (id(part),)


def _preview(part: SentPart) -> str:
    content = part.message.body.get("content")
    text = content if isinstance(content, str) else ""
    return (text or ("" if part.card is None else card_text(part.card.content)))[:200]
