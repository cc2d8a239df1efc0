"""The registry of providers' formats: a line for each, and its record when somebody asks for it.

Loads a provider's folder when its record is first wanted, so that naming formats costs nothing. Owns which
provider a model is of; what they do stands in their records.
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from cardbox_cli.model.tokens import ESTIMATE, Tokenizer

if TYPE_CHECKING:
    from cardbox_cli.context.providers.provider import Provider

# The name of each format, and the package whose PROVIDER is its record.
PROVIDERS = {
    "openai": "cardbox_cli.context.providers.openai",
    "anthropic": "cardbox_cli.context.providers.anthropic",
    "openai-responses": "cardbox_cli.context.providers.openai_responses",
    "gemini": "cardbox_cli.context.providers.gemini",
    "bedrock-converse": "cardbox_cli.context.providers.bedrock_converse",
}
# Those who take a provider's format and have rules of their own, by which requests are checked, and no more:
# the format, and the module whose PROVIDER is the record.
HOSTS = {"openai-compatible": ("openai", "cardbox_cli.context.providers.openai.compatible")}
# The one that is meant where nothing tells another.
DEFAULT = next(iter(PROVIDERS))


@cache
def provider_named(name: str) -> "Provider":
    """The provider of this name, one of PROVIDERS or HOSTS."""
    module = HOSTS[name][1] if name in HOSTS else PROVIDERS[name]
    record: Provider = import_module(module).PROVIDER
    return record


def providers() -> "Iterator[Provider]":
    """All of them, in order."""
    return map(provider_named, PROVIDERS)


def provider_for_model(model: str | None) -> "Provider":
    """The provider that knows a model by its name, else the default."""
    known = (each for each in providers() if model is not None and each.models.recognises(model))
    return next(known, provider_named(DEFAULT))


def window(model: str | None) -> int | None:
    """How many tokens a model holds, or None where that is not known."""
    return None if model is None else provider_for_model(model).models.window(model)


def tokenizer_for(model: str | None) -> Tokenizer:
    """The tokenizer of a model, if it is known by its name and at hand; else the estimate."""
    if model is None:
        return ESTIMATE
    return provider_for_model(model).models.tokenizer(model)
