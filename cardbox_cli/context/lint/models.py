"""What the lint knows of models by their names: who provides them, how much they hold, what they refuse.

Of a name that is not known here nothing is claimed.
"""

import re

# Beginnings of names, the longest that fits counts; in tokens, input and output together.
_WINDOWS = {
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-5": 400_000,
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "claude-2": 200_000,
    "claude-3": 200_000,
    "claude-haiku-4": 200_000,
    "claude-opus-4": 200_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-4": 1_000_000,
    "claude-sonnet-5": 1_000_000,
}

# The last version of Claude that goes on with a last message of the assistant, and families that never did.
_LAST_TO_PREFILL = (4, 5)
_NEVER_PREFILL = ("fable", "mythos")
_CLAUDE = re.compile(r"claude-([a-z]+)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")


def provider_of(model: str | None) -> str:
    """The provider whose rules a model's request is checked by: anthropic for a Claude, else openai."""
    return "anthropic" if model is not None and "claude" in model else "openai"


def window(model: str | None) -> int | None:
    """How many tokens a model holds, or None where that is not known."""
    name = _bare(model)
    known = [start for start in _WINDOWS if name == start or name.startswith((start + "-", start + "@"))]
    return _WINDOWS[max(known, key=len)] if known else None


def takes_prefill(model: str | None) -> bool:
    """Whether a model goes on with a last message of the assistant. One that is not known may."""
    known = _CLAUDE.match(_bare(model))
    if known is None:
        return True
    family, major, minor = known.groups()
    return family not in _NEVER_PREFILL and (int(major), int(minor or 0)) <= _LAST_TO_PREFILL


def _bare(model: str | None) -> str:
    """The name without what a gateway puts before it, such as `anthropic/` or `us.anthropic.`."""
    name = (model or "").rpartition("/")[2]
    return name[name.find("claude") :] if "claude" in name else name
