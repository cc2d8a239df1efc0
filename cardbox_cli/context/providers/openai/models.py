"""OpenAI's models by their names: how much they hold, what counts their tokens, which of them reason.

Of a name that is not known here nothing is claimed.
"""

import re
from typing import Any

from cardbox_cli.context.providers.provider import Models
from cardbox_cli.model.tokens import ESTIMATE, Tokenizer, bare_name, encoding_tokenizer

_RECOGNISED = re.compile(r"(chat)?gpt-|o[134]([-@]|$)")
# In tokens, input and output together.
_HOLDING = {
    4_096: ("gpt-3.5-turbo-0301", "gpt-3.5-turbo-0613"),
    8_192: ("gpt-4",),
    16_385: ("gpt-3.5-turbo", "gpt-3.5-turbo-16k"),
    32_768: ("gpt-4-32k",),
    128_000: (
        *("gpt-4-1106-preview", "gpt-4-0125-preview", "gpt-4-vision-preview", "gpt-4-turbo-preview"),
        *("gpt-4-turbo", "gpt-4.5-preview", "gpt-4o", "gpt-4o-mini", "chatgpt-4o", "o1-mini", "o1-preview"),
        *("gpt-5-chat", "gpt-5.1-chat", "gpt-5.2-chat", "gpt-5.3-chat"),
    ),
    200_000: ("o1", "o1-pro", "o3", "o3-mini", "o3-pro", "o4-mini"),
    400_000: (
        *("gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-5-pro", "gpt-5-codex"),
        *("gpt-5.1", "gpt-5.1-codex", "gpt-5.1-codex-mini", "gpt-5.1-codex-max"),
        *("gpt-5.2", "gpt-5.2-pro", "gpt-5.2-codex", "gpt-5.3-codex", "gpt-5.4-mini", "gpt-5.4-nano"),
    ),
    1_047_576: ("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"),
    1_050_000: ("gpt-5.4", "gpt-5.4-pro", "gpt-5.5", "gpt-5.5-pro"),
}

# encoding -> the bare names of its models
_ENCODINGS = {
    "o200k_base": re.compile(
        r"(gpt-4o|chatgpt-4o|gpt-4\.1|gpt-4\.5|gpt-5(\.\d+)?|gpt-oss|o1|o3|o4)([-@:].*)?"
    ),
    "cl100k_base": re.compile(r"gpt-(3\.5|35|4)([-@:].*)?"),
}
# OpenAI Cookbook, How to count tokens with tiktoken: the models of which it says what a message costs.
_DOCUMENTED = re.compile(r"gpt-(3\.5|35|4o?)([-@:].*)?")

# The models that reason. From 5.1 on they can be asked not to; those that chat never do.
_REASONING = re.compile(r"(?:o[134]|gpt-5(?:\.\d+)?)(?=[-@]|$)(?!-chat)")
_MAY_NOT_REASON = re.compile(r"gpt-5\.")

# OpenAI docs, Models and Reasoning models, and the API reference, `reasoning_effort`: what models take, each
# name to its end. Of others nothing is claimed.
_EFFORTS = {
    re.compile(r"(o1-mini|o1-preview|(chat)?gpt-(3\.5|4)[^/]*)"): (),
    re.compile(r"(o1|o3|o3-mini|o4-mini)"): ("low", "medium", "high"),
    re.compile(r"gpt-5-pro"): ("high",),
    re.compile(r"gpt-5(-mini|-nano)?"): ("minimal", "low", "medium", "high"),
    re.compile(r"gpt-5\.1"): ("none", "low", "medium", "high"),
    re.compile(r"gpt-5\.2"): ("none", "low", "medium", "high", "xhigh"),
}
# OpenAI docs, the page of each model: the most tokens of an answer, of models that do not reason.
_ANSWERS = {
    4_096: (
        *("gpt-3.5-turbo", "gpt-3.5-turbo-16k", "gpt-4-turbo", "gpt-4-turbo-preview"),
        *("gpt-4-1106-preview", "gpt-4-0125-preview", "gpt-4-vision-preview"),
    ),
    16_384: ("gpt-4o", "gpt-4o-mini", "chatgpt-4o"),
    32_768: ("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"),
}
_BLIND = re.compile(r"gpt-3\.5.*|gpt-4(-32k)?|gpt-4-(1106|0125|turbo)-preview|o1-mini|o1-preview|o3-mini")
_WITHOUT_TOOLS = re.compile(r"o1-mini|o1-preview|chatgpt-4o")
_WITHOUT_SYSTEM = re.compile(r"o1-mini|o1-preview")
_WITHOUT_SCHEMAS = re.compile(
    r"gpt-3\.5.*|gpt-4(-32k|-turbo.*|-\d{4}-preview|-vision-preview)?|o1-mini|o1-preview"
)


def efforts(model: str | None) -> tuple[str, ...] | None:
    """How much effort a model can be asked for, where that is known; () for one that cannot be asked."""
    name = MODELS.plain_name(model or "")
    return next((values for names, values in _EFFORTS.items() if names.fullmatch(name)), None)


def longest_answer(model: str | None) -> int | None:
    """The most tokens that an answer of a model may be asked to have, where that is known."""
    name = MODELS.plain_name(model or "")
    return next((tokens for tokens, names in _ANSWERS.items() if name in names), None)


def is_deaf(model: str | None) -> bool:
    """Whether it is a known model that takes no audio, nor gives any."""
    return model is not None and MODELS.window(model) is not None and "audio" not in model


def searches_not(model: str | None) -> bool:
    """Whether it is a known model that does not search the web in a chat completion."""
    return model is not None and MODELS.window(model) is not None and "search" not in model


def is_blind(model: str | None) -> bool:
    """Whether it is a known model that takes no images."""
    return _BLIND.fullmatch(MODELS.plain_name(model or "")) is not None


def takes_tools(model: str | None) -> bool:
    """Whether a model may be given tools. One that is not known may."""
    return _WITHOUT_TOOLS.fullmatch(MODELS.plain_name(model or "")) is None


def takes_system(model: str | None) -> bool:
    """Whether a model takes system text. One that is not known does."""
    return _WITHOUT_SYSTEM.fullmatch(MODELS.plain_name(model or "")) is None


def takes_schemas(model: str | None) -> bool:
    """Whether a model can be held to a JSON schema. One that is not known can."""
    return _WITHOUT_SCHEMAS.fullmatch(MODELS.plain_name(model or "")) is None


def _tokenizer(model: str) -> Tokenizer:
    name = bare_name(model)
    encoding = next((encoding for encoding, names in _ENCODINGS.items() if names.fullmatch(name)), None)
    return ESTIMATE if encoding is None else encoding_tokenizer(encoding)


def reasons(model: str | None, effort: Any) -> bool:
    """Whether a model reasons at this `reasoning_effort`, where that is known."""
    if not is_reasoning(model):
        return False
    return effort not in (None, "none") if _MAY_NOT_REASON.match(bare_name(model)) else True


def is_reasoning(model: str | None) -> bool:
    """Whether it is one of the models that reason, or may."""
    return _REASONING.match(bare_name(model)) is not None


MODELS = Models(
    recognises=lambda model: _RECOGNISED.match(bare_name(model)) is not None,
    holding=_HOLDING,
    tokenizer=_tokenizer,
    documents_costs=lambda model: _DOCUMENTED.fullmatch(bare_name(model)) is not None,
)
