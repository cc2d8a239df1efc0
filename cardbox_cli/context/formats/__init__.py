"""The dialects that a request can be sent in, by name.

A dialect says what one card is in it (`spell`), and makes the body of a whole request (`body`).
"""

from typing import Any, Protocol

from cardbox_cli.context.formats import anthropic, openai
from cardbox_cli.context.messages import Silence
from cardbox_cli.context.request import Request
from cardbox_cli.model.cards import Card


class Dialect(Protocol):
    """What the module of a provider's format offers."""

    def spell(self, card: Card) -> dict[str, Any] | Silence:
        """The message that `card` is, or the reason why it is none."""

    def body(self, request: Request) -> dict[str, Any]:
        """The JSON body of `request`, whose messages `spell` spelled; without a model when none is known."""


DIALECTS: dict[str, Dialect] = {"openai": openai, "anthropic": anthropic}
