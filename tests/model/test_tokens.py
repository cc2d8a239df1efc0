"""Counting tokens: exactly as OpenAI's own library does, and about."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardbox_cli.model import tokens
from cardbox_cli.model.tokens import ESTIMATING_TOKENIZER, Tokenizer, estimate_tokens
from cardbox_cli.providers.models import tokenizer_for

EXACT = [tokenizer_for("gpt-4o"), tokenizer_for("gpt-4")]

# What two other implementations count, tiktoken 0.14 and toktok 0.3: by o200k_base, and by cl100k_base.
KNOWN = [
    ("", 0, 0),
    ("hello world", 2, 2),
    ("The deploy failed after 2 minutes.\n\n    return None\n", 12, 12),
    ('{"status":"ok","rows":[{"minute":1,"errors":553}]}', 17, 16),
    ("值班工程师在凌晨两点收到告警。", 12, 20),
    ("注文APIのエラー率が0.2%から7%に上がっていた。", 20, 23),
    ("🧠👩‍👩‍👧🇩🇪", 15, 22),
    ("e\u0301 ﬁ ǅ Ⅷ ½ iPhone's I'LL", 16, 17),
    ("<|endoftext|><|im_start|>user", 13, 13),
    (" " * 200, 2, 2),
    ("x" * 4000, 500, 500),
]


@pytest.mark.parametrize(("text", "o200k", "cl100k"), KNOWN)
def test_exact_counts_match_the_provider(text: str, o200k: int, cl100k: int) -> None:
    assert [tokenizer.count(text) for tokenizer in EXACT] == [o200k, cl100k]
    assert [tokenizer.count(text) for tokenizer in EXACT] == [o200k, cl100k], "the second time"


def test_a_lone_surrogate_counts_as_the_question_mark_that_is_sent() -> None:
    assert EXACT[0].count("a\ud800b") == EXACT[0].count("a?b") == 3


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("o200k_base", "gpt-4o gpt-4o-mini-2024-07-18 chatgpt-4o-latest gpt-4.1 gpt-4.1-nano gpt-5 gpt-5-mini gpt-5.1"),
        ("o200k_base", "o1 o3-mini o4-mini gpt-oss-120b openai/gpt-4o openrouter/openai/o3 ft:gpt-4o-mini:acme::1"),
        ("cl100k_base", "gpt-4 gpt-4-0613 gpt-4-turbo gpt-3.5-turbo gpt-35-turbo azure/gpt-4-32k"),
        ("estimate-2", "claude-opus-4-5 anthropic/claude-sonnet-4 gpt-4.7 gpt-6 o10 gpt-40 llama-3 openai/ gpt-2"),
    ],
)  # fmt: skip
def test_the_tokenizer_depends_on_the_model_name(name: str, models: str) -> None:
    assert {model: tokenizer_for(model).name for model in models.split()} == dict.fromkeys(
        models.split(), name
    )
    assert tokenizer_for("openai/" + models.split()[0]).exact == (name != "estimate-2")


@pytest.mark.parametrize("model", [None, ""])
def test_the_tokenizer_without_a_model_estimates(model: str | None) -> None:
    assert tokenizer_for(model) is ESTIMATING_TOKENIZER


def test_the_tokenizer_package_is_loaded_lazily_and_optional() -> None:
    code = (
        "import sys; from cardbox_cli.providers.models import tokenizer_for\n"
        "print(tokenizer_for('claude-opus-4-5').name, 'splintr' in sys.modules)\n"
        "sys.modules['splintr'] = None\n"
        "print(tokenizer_for('gpt-4o').name, tokenizer_for('gpt-4o').exact)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["estimate-2 False", "estimate-2 False"]


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("", 0),
        ("x", 1),
        ("hello there", 2),
        ('{"k":"v"}', 5),
        ("2026-11-22", 6),
        ("größer", 1),
        ("Привет мир", 3),
        ("凌晨两点收到告警", 6),
        ("🧠🧠", 2),
        ("a\ud800", 1),
    ],
)
def test_the_estimate_depends_on_the_types_of_characters(text: str, about: int) -> None:
    assert estimate_tokens(text) == about


@given(st.text(), st.text())
def test_the_estimate_of_two_texts_is_the_sum_of_both(one: str, other: str) -> None:
    assert abs(estimate_tokens(one + other) - estimate_tokens(one) - estimate_tokens(other)) <= 1


@given(st.text())
def test_a_text_has_at_least_one_token_and_at_most_one_per_byte(text: str) -> None:
    for tokenizer in (ESTIMATING_TOKENIZER, *EXACT):
        assert bool(text) <= tokenizer.count(text) <= len(text.encode())


def test_counts_are_cached_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "_MAX_CACHED", 2)
    monkeypatch.setattr(tokens, "_MAX_KEY_CHARACTERS", 3)
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [0] * len(text)

    counting = Tokenizer("t", True, tokens._cache_counts(encode))
    assert [counting.count(text) for text in ("a", "long", "a", "long", "b", "a")] == [1, 4, 1, 4, 1, 1]
    assert asked == ["a", "long", "b", "a"]
