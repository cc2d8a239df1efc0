"""Columns of cards, and of the places of a box, which hold cards."""

from collections.abc import Callable
from typing import NamedTuple

from cardbox_cli.cli.terminal.columns.shared import aged
from cardbox_cli.cli.terminal.tables.layout import NOTHING, Column
from cardbox_cli.cli.terminal.tables.shown import Columns, replaced
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.pairing import answers, full_text, preview
from cardbox_cli.model.tokens import ESTIMATE, Tokenizer, card_tokens
from cardbox_cli.text import flat, format_size, format_time, format_tokens


class Place(NamedTuple):
    """A place of a box, the rule that brought its card, and the tool that this calls or answers for."""

    slot: Slot
    rule: str
    tool: str = NOTHING


def _tokens(tokenizer: Tokenizer) -> Callable[[Card], str]:
    return lambda card: format_tokens(card_tokens(card, tokenizer), exact=tokenizer.exact)


def _counted(tokenizer: Tokenizer) -> Callable[[Card], int]:
    return lambda card: card_tokens(card, tokenizer)


def _bytes(card: Card) -> int:
    return len(full_text(card).encode("utf-8", "surrogatepass"))


def _metadata(key: str) -> Callable[[Card], str]:
    return lambda card: str(card.metadata.get(key) or NOTHING)


CARD: Columns = (
    Column("ID", lambda card: short_id(card.card_id)),
    Column("FULL ID", lambda card: card.card_id, extra=True),
    Column("TYPE", lambda card: card.type),
    Column("ROLE", lambda card: card.role or NOTHING, spare=1),
    aged("created_at"),
    Column("CREATED", lambda card: format_time(card.created_at) or NOTHING, extra=True),
    Column("AUTHOR", lambda card: card.author_id or NOTHING, extra=True),
    Column("TURN", _metadata("agent_turn_id"), extra=True),
    Column("STEP", _metadata("step_id"), extra=True),
    Column("TRACE", _metadata("trace_id"), extra=True),
    Column("CALL", lambda card: answers(card) or NOTHING, extra=True),
    Column("SIZE", lambda card: format_size(full_text(card)), right=True, spare=3, key=_bytes),
    Column("TOKENS", _tokens(ESTIMATE), right=True, extra=True, spare=4, key=_counted(ESTIMATE)),
    Column("PREVIEW", preview, overflow="cut"),
)


# --- the places of a box


def _of_card(text: Callable[[Card], str]) -> Callable[[Place], str]:
    return lambda place: NOTHING if place.slot.card is None else text(place.slot.card)


def _of_place(column: Column) -> Column:
    """A column of cards as one of places, some of which have no card."""
    key = column.key
    if key is None:
        return column._replace(text=_of_card(column.text))
    return column._replace(
        text=_of_card(column.text),
        key=lambda place: None if place.slot.card is None else key(place.slot.card),
    )


def _place_preview(place: Place) -> str:
    card, state = place.slot.card, place.slot.state
    if card is None:
        return "(dangling: no such card)"
    return preview(card) if state == "present" else f"({state}) {preview(card)}"


def _shown(column: Column, tokenizer: Tokenizer) -> Column:
    """A column of places; how many tokens there are is always wanted."""
    if column.name != "TOKENS":
        return column
    count = _counted(tokenizer)
    return column._replace(
        extra=False, key=lambda place: None if place.slot.card is None else count(place.slot.card)
    )


def places(tokenizer: Tokenizer = ESTIMATE, *, with_rule: bool = False) -> Columns:
    """The columns of places, their tokens counted by `tokenizer`; the rule is shown unasked or not."""
    *of_cards, _ = map(_of_place, CARD)
    whole = replaced(
        of_cards,
        ID=lambda place: short_id(place.slot.card_id),
        FULL_ID=lambda place: place.slot.card_id,
        TOKENS=_of_card(_tokens(tokenizer)),
    )
    tool = Column("TOOL", lambda place: flat(place.tool), extra=True)
    at = next(number for number, column in enumerate(whole) if column.name == "ROLE") + 1
    return (
        Column("#", lambda place: str(place.slot.position), right=True),
        *(_shown(column, tokenizer) for column in [*whole[:at], tool, *whole[at:]]),
        Column("RULE", lambda place: place.rule, extra=not with_rule, spare=0 if with_rule else 1),
        Column("PREVIEW", _place_preview, overflow="cut"),
    )
