"""Google's models by their names: how much they hold. Nothing exact counts their tokens offline."""

import re

from cardbox_cli.context.providers.provider import Models
from cardbox_cli.model.tokens import bare_name

_RECOGNISED = re.compile(r"(models/)?gemini-")
# In tokens of the input. Source: Gemini API docs, "Gemini models".
_HOLDING = {
    1_048_576: (
        *("gemini-1.5-flash", "gemini-1.5-flash-8b", "gemini-2.0-flash", "gemini-2.0-flash-lite"),
        *("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"),
        *("gemini-3-pro-preview", "gemini-3-flash-preview"),
    ),
    2_097_152: ("gemini-1.5-pro",),
}

MODELS = Models(recognises=lambda model: _RECOGNISED.match(bare_name(model)) is not None, holding=_HOLDING)
