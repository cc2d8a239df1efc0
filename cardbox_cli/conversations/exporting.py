"""Exporting a box as a conversation: the messages that its cards are, in order."""

from collections.abc import Iterable
from typing import Any

from cardbox_cli.conversations.openai import message_of_card
from cardbox_cli.model.cards import Card


def export_messages(cards: Iterable[Card]) -> dict[str, list[dict[str, Any]]]:
    """`{"messages": […]}` in OpenAI's format. Cards that never are messages are not in it."""
    messages = (message_of_card(card) for card in cards)
    return {"messages": [message for message in messages if message is not None]}
