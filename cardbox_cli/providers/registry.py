"""The registry of providers' formats: a line for each, and its class when somebody asks for it.

Imports a provider's package when it is first wanted, so that listing formats costs nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache

from cardbox_cli.context.provider import ModelFacts, Provider, Registry
from cardbox_cli.context.request import RequestEntry, model_of, profile_of
from cardbox_cli.errors import InvalidInput
from cardbox_cli.providers import models
from cardbox_cli.settings import MODELS


def _openai(registry: Registry) -> Provider:
    from cardbox_cli.providers.openai.request import OpenAI

    return OpenAI(registry)


def _openai_compatible(registry: Registry) -> Provider:
    from cardbox_cli.providers.openai.request import OpenAICompatible

    return OpenAICompatible(registry)


def _anthropic(registry: Registry) -> Provider:
    from cardbox_cli.providers.anthropic.request import Anthropic

    return Anthropic(registry)


def _openai_responses(registry: Registry) -> Provider:
    from cardbox_cli.providers.openai_responses.request import OpenAIResponses

    return OpenAIResponses(registry)


def _gemini(registry: Registry) -> Provider:
    from cardbox_cli.providers.gemini.request import Gemini

    return Gemini(registry)


def _bedrock_converse(registry: Registry) -> Provider:
    from cardbox_cli.providers.bedrock_converse.request import BedrockConverse

    return BedrockConverse(registry)


# The name of each format, and what makes its provider: a class of Provider, or a function that imports it.
PROVIDERS: dict[str, Callable[[Registry], Provider]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "openai-responses": _openai_responses,
    "gemini": _gemini,
    "bedrock-converse": _bedrock_converse,
}
# Hosts that take a provider's format and have rules of their own: the format, and what makes them. They are
# for checks alone.
HOSTS: dict[str, tuple[str, Callable[[Registry], Provider]]] = {
    "openai-compatible": ("openai", _openai_compatible)
}
# The format if nothing says which.
DEFAULT = next(iter(PROVIDERS))


class _Registered:
    """The providers of this module, as each of them gets the others."""

    def providers(self) -> Iterator[Provider]:
        """Return every provider, in order."""
        return providers()

    def facts(self, model: str | None) -> ModelFacts:
        """Return the facts about a model."""
        return models.facts_of(model)

    def model_provider(self, model: str | None) -> str | None:
        """Return the name of the provider of a model; None if it is not known."""
        return models.provider_of_model(model)


@cache
def provider_named(name: str) -> Provider:
    """Return the provider of this name, one of PROVIDERS or HOSTS."""
    make = HOSTS[name][1] if name in HOSTS else PROVIDERS[name]
    return make(_Registered())


def providers() -> Iterator[Provider]:
    """Return all providers, in order; hosts are none."""
    return map(provider_named, PROVIDERS)


def provider_for_model(model: str | None) -> str:
    """Return the name of the provider of a model, or of the default one if the model is not known.

    Raises InvalidInput if the file of CBX_MODELS names a provider that does not exist.
    """
    name = models.provider_of_model(model) or DEFAULT
    if name not in PROVIDERS:
        raise InvalidInput(
            f"{MODELS.name} names the provider {name!r} for the model {model!r}, which does not exist",
            hint=f"providers are {', '.join(PROVIDERS)}",
        )
    return name


def provider_for(entries: Iterable[RequestEntry], model: str | None = None) -> str:
    """Return the name of the provider to check by: that of `model`, else of the model that the profile
    names."""
    if model is None:
        present = (entry.slot.card for entry in entries if entry.slot.state == "present")
        model = model_of(profile_of(card for card in present if card is not None))
    return provider_for_model(model)
