"""Hosts that take OpenAI's chat completions for models of their own: Mistral, Groq, OpenRouter, vLLM, Ollama.

Each knows parameters, values and models that OpenAI does not, so of OpenAI's rules those are left that say
what a chat completion is. A record for the lint alone.
"""

import msgspec

from cardbox_cli.context.providers.openai import PROVIDER as OPENAI
from cardbox_cli.context.providers.openai import rules
from cardbox_cli.context.providers.provider import Models

PROVIDER = msgspec.structs.replace(
    OPENAI,
    name="openai-compatible",
    title="An OpenAI-compatible host",
    models=Models(recognises=lambda _: False, holding={}),
    rules=__name__,
)

# What is OpenAI's alone: how many and how long, which values there are, what its models refuse.
_OPENAIS = {
    *(
        "parameter-unknown",
        "key-unknown",
        "value-unknown",
        "parameter-out-of-range",
        "parameter-without-other",
    ),
    *("tool-id-too-long", "too-many-tools", "speaker-name-invalid", "json-unsaid", "list-empty"),
    *("image-invalid", "schema-name-invalid", "strict-schema-invalid", "parameters-exclusive"),
    *("tool-schema-invalid", "description-too-long", "answer-too-long"),
    *("role-refused", "image-refused", "input-audio-refused", "parameter-refused", "reasoning-parameters"),
}

RULES = tuple(rule for rule in rules.RULES if rule.id not in _OPENAIS)
