"""The message in the chat form that a card is, its original taken into account.

Pure. Formats that are no chat form are made of it, and `text` is; what a card keeps of an original is known
to the provider whose format that was in.
"""

from typing import Any

from cardbox_cli.context.messages import NOT_IN_CHAT, NoMessage, standard_body
from cardbox_cli.context.providers.registry import PROVIDERS, provider_named
from cardbox_cli.context.sources import BLOCKS, MESSAGE
from cardbox_cli.model.cards import Card, CardDraft


def chat_message(card: Card) -> dict[str, Any] | NoMessage:
    """The message in the chat form that a card is, or why it is none."""
    return NOT_IN_CHAT.get(card.type) or chat_body(card)


def chat_body(card: Card | CardDraft) -> dict[str, Any]:
    """The message of a card that makes one: its original, or what its fields hold."""
    if MESSAGE in card.metadata or BLOCKS in card.metadata:
        for name in PROVIDERS:
            original = provider_named(name).chat_original(card)
            if original is not None:
                return original
    return standard_body(card)
