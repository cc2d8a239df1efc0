"""The numbers of tokens that a provider reported for a request, from any provider's object of usage. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """The tokens of a request, including those read from or written to a cache, and of its answer."""

    input: int
    output: int | None


# The names of the counts of a request's tokens. The first one that is present counts.
_INPUT = (
    *("prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount", "prompt_token_count"),
    *("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
)
# Counts that are not included in those above.
_EXTRA = (
    *("cache_creation_input_tokens", "cache_read_input_tokens"),
    *("cacheReadInputTokens", "cacheWriteInputTokens"),
    *("toolUsePromptTokenCount", "tool_use_prompt_token_count"),
    *("input_tokens_cache_read", "input_tokens_cache_write"),
)
_OUTPUT = (
    *("completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount", "candidates_token_count"),
    *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
)
# The only count of an answer that is not included in its tokens.
_THOUGHTS = ("thoughtsTokenCount", "thoughts_token_count")

_MAX_LEVELS = 8


def read_usage(value: Any) -> Usage | None:
    """Return the counts of an object of usage, or None if it has no count of a request's tokens."""
    if not isinstance(value, Mapping):
        return None
    read = _first(value, _INPUT)
    if read is None and not any(_count(value, name) for name in _EXTRA):
        return None
    written = _first(value, _OUTPUT)
    thoughts = sum(_count(value, name) or 0 for name in _THOUGHTS)
    extra = sum(_count(value, name) or 0 for name in _EXTRA)
    return Usage((read or 0) + extra, written if written is None else written + thoughts)


def find_usage(metadata: Any) -> Usage | None:
    """Return the usage in the metadata of an imported card, which preserve what its file said."""
    return next(filter(None, map(read_usage, _objects(metadata, _MAX_LEVELS))), None)


def _objects(value: Any, levels: int) -> Iterator[Any]:
    """Yield an object and the objects in it, the outer ones first."""
    if levels and isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _objects(each, levels - 1)
    elif levels and isinstance(value, list):
        for each in value:
            yield from _objects(each, levels - 1)


def _first(value: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((count for name in names if (count := _count(value, name)) is not None), None)


def _count(value: Mapping[str, Any], name: str) -> int | None:
    count = value.get(name)
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None
