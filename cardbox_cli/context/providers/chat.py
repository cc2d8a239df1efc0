"""The message in the chat form that a card is, its original taken into account.

Pure. Formats that are no chat form are made of it, and `text` is; what a card keeps of an original is known
to the provider whose format that was in.
"""

from typing import Any

from cardbox_cli.context.messages import NOT_IN_CHAT, NoMessage, standard_body
from cardbox_cli.context.providers.registry import providers
from cardbox_cli.context.sources import may_have_original
from cardbox_cli.model.cards import Card, CardDraft


def chat_message(card: Card) -> dict[str, Any] | NoMessage:
    """The message in the chat form that a card is, or why it is none."""
    nothing = NOT_IN_CHAT.get(card.type)
    if nothing is not None:
        return nothing
    return chat_body(card) if may_have_original(card) else standard_body(card)


def chat_body(card: Card | CardDraft) -> dict[str, Any]:
    """The message of a card that makes one: its original, or what its fields hold."""
    if may_have_original(card):
        for each in providers():
            original = each.chat_original(card)
            if original is not None:
                return original
    return standard_body(card)
