"""What providers refuse, made of requests that they took: a module for each provider's format."""

from importlib import import_module

from tests.lint_truth.mutations.mutation import Mutation

_MODULES = {
    "openai": "tests.lint_truth.mutations.openai",
    "anthropic": "tests.lint_truth.mutations.anthropic",
    "openai-responses": "tests.lint_truth.mutations.openai_responses",
    "gemini": "tests.lint_truth.mutations.gemini",
    "bedrock-converse": "tests.lint_truth.mutations.bedrock_converse",
}


def mutations_of(provider: str) -> tuple[Mutation, ...]:
    """The mutations of requests to a provider; none where nobody wrote any."""
    module = _MODULES.get(provider)
    made: tuple[Mutation, ...] = () if module is None else import_module(module).MUTATIONS
    return made
