"""Where a prefix cache first breaks in a series: the very character, with what stands there on both sides."""

import msgspec

from cardbox_cli.context.cost.account import Account
from cardbox_cli.context.inspection.diff import Piece, diff

# Characters that are shown before the first that differs, and from it on.
_BEFORE, _AFTER = 40, 80


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """The first request that does not go on from the one before, by their numbers in the series.

    `section`, `number`, `layer` and `card_id` say in which piece they part. The texts of both have
    `character` characters in common; `before` are the last of these, `a` and `b` go on from there. Where a
    text is known by its hash alone, `character` is None, and so is the side that has no such piece.
    `lost` tokens of the earlier one stand behind.
    """

    a_step: int
    b_step: int
    section: str
    number: int
    layer: str | None
    card_id: str | None
    character: int | None
    before: str
    a: str | None
    b: str | None
    lost: int


def first_break(account: Account) -> Break | None:
    """The first break of a series, None where each request goes on from the one before."""
    for place, step in enumerate(account.steps):
        if step.breaks:
            one, other = account.series[place - 1], account.series[place]
            found = diff(one.request, other.request, other.provider)
            if found.difference is not None:
                return _break(place, found.difference.a, found.difference.b, found.a_after.tokens)
    return None


def _break(place: int, a: Piece | None, b: Piece | None, lost: int) -> Break:
    piece = b or a
    assert piece is not None
    one, other = _text(a), _text(b)
    is_known = one is not None and other is not None
    character = _common(one or "", other or "") if is_known else None
    start = character or 0
    return Break(
        a_step=place,
        b_step=place + 1,
        section=piece.section,
        number=piece.number,
        layer=piece.layer,
        card_id=next(iter(piece.card_ids), None),
        character=character,
        before="" if one is None else one[max(start - _BEFORE, 0) : start],
        a=None if one is None else one[start : start + _AFTER],
        b=None if other is None else other[start : start + _AFTER],
        lost=lost,
    )


def _text(piece: Piece | None) -> str | None:
    return None if piece is None or piece.sha256 is not None else piece.text


def _common(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)
