"""The registry of providers. Imports a provider's package on its first use."""

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from cardbox_cli.errors import InvalidInput
from cardbox_cli.settings import MODELS

if TYPE_CHECKING:
    from cardbox_cli.context.provider import ModelFacts, Provider
    from cardbox_cli.context.request import RequestEntry

# The name of each format, and its class.
PROVIDERS = {
    "openai": "cardbox_cli.providers.openai.request:OpenAI",
    "anthropic": "cardbox_cli.providers.anthropic.request:Anthropic",
    "openai-responses": "cardbox_cli.providers.openai_responses.request:OpenAIResponses",
    "gemini": "cardbox_cli.providers.gemini.request:Gemini",
    "bedrock-converse": "cardbox_cli.providers.bedrock_converse.request:BedrockConverse",
}
# Hosts that take a provider's format and have other lint rules: (format, class). Only checks use them.
HOSTS = {"openai-compatible": ("openai", "cardbox_cli.providers.openai.request:OpenAICompatible")}
# The format if neither the caller nor the model determines it.
DEFAULT = "openai"


class _Registered:
    """The functions of this module as the `Registry` object that each provider receives."""

    def providers(self) -> Iterator["Provider"]:
        return providers()

    def facts(self, model: str | None) -> "ModelFacts":
        from cardbox_cli.providers.models import facts_of

        return facts_of(model)

    def model_provider(self, model: str | None) -> str | None:
        from cardbox_cli.providers.models import provider_of_model

        return provider_of_model(model)


@cache
def provider_named(name: str) -> "Provider":
    """Return the provider of this name, one of PROVIDERS or HOSTS."""
    module, _, class_name = (HOSTS[name][1] if name in HOSTS else PROVIDERS[name]).partition(":")
    provider: Provider = getattr(import_module(module), class_name)(_Registered())
    return provider


def providers() -> Iterator["Provider"]:
    """Return all providers, in order, without hosts."""
    return map(provider_named, PROVIDERS)


def provider_for_model(model: str | None) -> str:
    """Return the name of the provider of a model, or of the default provider if the model is unknown.

    Raises InvalidInput if the file of CBX_MODELS names a provider that does not exist.
    """
    from cardbox_cli.providers.models import provider_of_model

    name = provider_of_model(model) or DEFAULT
    if name not in PROVIDERS:
        raise InvalidInput(
            f"unknown provider {name!r} for the model {model!r} in {MODELS.name}",
            hint=f"providers are {', '.join(PROVIDERS)}",
        )
    return name


def provider_for(entries: Iterable["RequestEntry"], model: str | None = None) -> str:
    """Return the name of the provider of `model`, or else of the model that a profile in `entries` names."""
    from cardbox_cli.context.request import model_of, profile_of

    if model is None:
        present = (entry.slot.card for entry in entries if entry.slot.state == "present")
        model = model_of(profile_of(card for card in present if card is not None))
    return provider_for_model(model)
