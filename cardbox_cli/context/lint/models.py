"""What the lint knows of models by their names: who provides them, how much they hold, what they refuse.

Of a name that is not known here nothing is claimed.
"""

import re
from typing import Any

# In tokens, input and output together; without the beta headers that make some models hold more.
_HOLDING = {
    4_096: ("gpt-3.5-turbo-0301", "gpt-3.5-turbo-0613"),
    8_192: ("gpt-4",),
    16_385: ("gpt-3.5-turbo", "gpt-3.5-turbo-16k"),
    32_768: ("gpt-4-32k",),
    100_000: ("claude-2", "claude-2-0", "claude-instant-1-2"),
    128_000: (
        *("gpt-4-1106-preview", "gpt-4-0125-preview", "gpt-4-vision-preview", "gpt-4-turbo-preview"),
        *("gpt-4-turbo", "gpt-4.5-preview", "gpt-4o", "gpt-4o-mini", "chatgpt-4o", "o1-mini", "o1-preview"),
        *("gpt-5-chat", "gpt-5.1-chat", "gpt-5.2-chat", "gpt-5.3-chat"),
    ),
    200_000: (
        *("o1", "o1-pro", "o3", "o3-mini", "o3-pro", "o4-mini"),
        *("claude-2-1", "claude-3-haiku", "claude-3-sonnet", "claude-3-opus"),
        *("claude-3-5-haiku", "claude-3-5-sonnet", "claude-3-7-sonnet", "claude-haiku-4-5"),
        *("claude-sonnet-4", "claude-sonnet-4-0", "claude-sonnet-4-5"),
        *("claude-opus-4", "claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-5"),
    ),
    400_000: (
        *("gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-5-pro", "gpt-5-codex"),
        *("gpt-5.1", "gpt-5.1-codex", "gpt-5.1-codex-mini", "gpt-5.1-codex-max"),
        *("gpt-5.2", "gpt-5.2-pro", "gpt-5.2-codex", "gpt-5.3-codex", "gpt-5.4-mini", "gpt-5.4-nano"),
    ),
    1_000_000: (
        *("claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-opus-5-5"),
        *("claude-sonnet-4-6", "claude-sonnet-5", "claude-sonnet-5-5", "claude-haiku-5-5"),
        *("claude-fable-5", "claude-fable-5-1", "claude-mythos-5", "claude-mythos-5-1"),
    ),
    1_047_576: ("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"),
    1_050_000: ("gpt-5.4", "gpt-5.4-pro", "gpt-5.5", "gpt-5.5-pro"),
}  # fmt: skip
# By the whole name but for the mark of a snapshot: what goes on in another way is another model.
_WINDOWS = {name: tokens for tokens, names in _HOLDING.items() for name in names}
# `-2024-08-06`, `@20250514`, `-0613`, `-latest`; behind it a gateway's own version, as in `-v1:0`.
_SNAPSHOT = re.compile(r"(?:[-@](?:\d{4}-\d\d-\d\d|\d{8}|\d{4}|latest))?(?:-v\d+(?::\d+)?)?$")

# The last version of Claude that goes on with a last message of the assistant, and families that never did.
_LAST_TO_PREFILL = (4, 5)
_NEVER_PREFILL = ("fable", "mythos")
_CLAUDE = re.compile(r"claude-([a-z]+)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
# The last version of Claude that takes sampling parameters and a budget for its thinking.
_LAST_TO_SAMPLE = (4, 6)
# OpenAI's models that reason. From 5.1 on they may be told not to; those that chat never do.
_REASONING = re.compile(r"(?:o[134]|gpt-5(?:\.\d+)?)(?=[-@]|$)(?!-chat)")
_MAY_NOT_REASON = re.compile(r"gpt-5\.")


def provider_of(model: str | None) -> str:
    """The provider whose rules a model's request is checked by: anthropic for a Claude, else openai."""
    return "anthropic" if model is not None and "claude" in model else "openai"


def window(model: str | None) -> int | None:
    """How many tokens a model holds, or None where that is not known."""
    name = _bare(model)
    return _WINDOWS.get(name) or _WINDOWS.get(_SNAPSHOT.sub("", name, count=1))


def takes_prefill(model: str | None) -> bool:
    """Whether a model goes on with a last message of the assistant. One that is not known may."""
    family, version = _claude(model)
    return family not in _NEVER_PREFILL and version <= _LAST_TO_PREFILL


def takes_sampling(model: str | None) -> bool:
    """Whether a Claude takes another temperature than 1, and the like, and a budget of thinking."""
    return _claude(model)[1] <= _LAST_TO_SAMPLE


def reasons(model: str | None, effort: Any) -> bool:
    """Whether a model of OpenAI's reasons at this `reasoning_effort`, where that is known."""
    name = _bare(model)
    if not is_reasoning(model):
        return False
    return effort not in (None, "none") if _MAY_NOT_REASON.match(name) else True


def is_reasoning(model: str | None) -> bool:
    """Whether it is one of OpenAI's models that reason, or may."""
    return _REASONING.match(_bare(model)) is not None


def _claude(model: str | None) -> tuple[str, tuple[int, int]]:
    """The family and the version of a Claude; ("", (0, 0)) for another model."""
    known = _CLAUDE.match(_bare(model))
    if known is None:
        return "", (0, 0)
    family, major, minor = known.groups()
    return family, (int(major), int(minor or 0))


def _bare(model: str | None) -> str:
    """The name without what a gateway puts before it, such as `anthropic/` or `us.anthropic.`.

    A Claude's version is written with hyphens.
    """
    name = (model or "").rpartition("/")[2]
    return name[name.find("claude") :].replace(".", "-") if "claude" in name else name
