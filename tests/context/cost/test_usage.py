"""The tokens that providers report, in the shapes of their objects of usage."""

from typing import Any

import pytest

from cardbox_cli.context.cost.usage import Usage, find_usage, read_usage

SHAPES: dict[str, tuple[dict[str, Any], Usage]] = {
    "openai": ({"prompt_tokens": 9999, "completion_tokens": 7, "total_tokens": 10006}, Usage(9999, 7)),
    "openai without an answer": ({"prompt_tokens": 5}, Usage(5, None)),
    "openai cached": (
        {"prompt_tokens": 90, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 80}},
        Usage(90, 7),
    ),
    "responses": (
        {"input_tokens": 36, "input_tokens_details": {"cached_tokens": 30}, "output_tokens": 87},
        Usage(36, 87),
    ),
    "anthropic": (
        {
            "input_tokens": 4,
            "cache_creation_input_tokens": 18764,
            "cache_read_input_tokens": 100,
            "output_tokens": 12,
        },
        Usage(18868, 12),
    ),
    "anthropic without a cache": (
        {
            "input_tokens": 4,
            "cache_creation_input_tokens": None,
            "cache_read_input_tokens": None,
            "output_tokens": 12,
        },
        Usage(4, 12),
    ),
    "bedrock": (
        {
            "inputTokens": 30,
            "outputTokens": 5,
            "totalTokens": 135,
            "cacheReadInputTokens": 100,
            "cacheWriteInputTokens": 0,
        },
        Usage(130, 5),
    ),
    "gemini": (
        {
            "promptTokenCount": 40,
            "candidatesTokenCount": 6,
            "thoughtsTokenCount": 10,
            "cachedContentTokenCount": 30,
        },
        Usage(40, 16),
    ),
    "gemini, snake case": (
        {"prompt_token_count": 40, "candidates_token_count": 6, "tool_use_prompt_token_count": 2},
        Usage(42, 6),
    ),
    "opentelemetry": ({"gen_ai.usage.input_tokens": 11, "gen_ai.usage.output_tokens": 3}, Usage(11, 3)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_has_the_tokens_of_the_whole_request(shape: str) -> None:
    usage, expected = SHAPES[shape]
    assert read_usage(usage) == expected
    assert find_usage({"source_line": {"type": "assistant", "message": {"usage": usage}}}) == expected


@pytest.mark.parametrize(
    "value", [None, "many", 3, [], {}, {"total_tokens": 12}, {"prompt_tokens": True}, {"input_tokens": -1}]
)
def test_other_values_report_nothing(value: Any) -> None:
    assert read_usage(value) is None
    assert find_usage({"usage": value}) is None
