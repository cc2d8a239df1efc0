"""What providers refuse, made of requests that they took: a module for each provider's format."""

from importlib import import_module

from lint_truth.mutations.mutation import Mutation

_MODULES = {
    "openai": "lint_truth.mutations.openai",
    "anthropic": "lint_truth.mutations.anthropic",
    "openai-responses": "lint_truth.mutations.openai_responses",
    "gemini": "lint_truth.mutations.gemini",
    "bedrock-converse": "lint_truth.mutations.bedrock_converse",
}


def mutations_of(provider: str) -> tuple[Mutation, ...]:
    """The mutations of requests to a provider; none where nobody wrote any."""
    module = _MODULES.get(provider)
    made: tuple[Mutation, ...] = () if module is None else import_module(module).MUTATIONS
    return made
