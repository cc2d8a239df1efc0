"""Anthropic's models by their names: how much they hold, and what they refuse.

Of a name that is not known here nothing is claimed. Nothing exact counts their tokens offline.
"""

import re

from cardbox_cli.context.providers.provider import Models

# In tokens, input and output together; without the beta headers that make some models hold more.
_HOLDING = {
    100_000: ("claude-2", "claude-2-0", "claude-instant-1-2"),
    200_000: (
        *("claude-2-1", "claude-3-haiku", "claude-3-sonnet", "claude-3-opus"),
        *("claude-3-5-haiku", "claude-3-5-sonnet", "claude-3-7-sonnet", "claude-haiku-4-5"),
        *("claude-sonnet-4", "claude-sonnet-4-0", "claude-sonnet-4-5"),
        *("claude-opus-4", "claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-5"),
    ),
    1_000_000: (
        *("claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-opus-5-5"),
        *("claude-sonnet-4-6", "claude-sonnet-5", "claude-sonnet-5-5", "claude-haiku-5-5"),
        *("claude-fable-5", "claude-fable-5-1", "claude-mythos-5", "claude-mythos-5-1"),
    ),
}

# The last version that goes on with a last message of the assistant, and families that never did.
_LAST_TO_PREFILL = (4, 5)
_NEVER_PREFILL = ("fable", "mythos")
_CLAUDE = re.compile(r"claude-([a-z]+)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
# The last version that takes sampling parameters and a budget for its thinking.
_LAST_TO_SAMPLE = (4, 6)


def takes_prefill(model: str | None) -> bool:
    """Whether a model goes on with a last message of the assistant. One that is not known may."""
    family, version = _version(model)
    return family not in _NEVER_PREFILL and version <= _LAST_TO_PREFILL


def takes_sampling(model: str | None) -> bool:
    """Whether a model takes another temperature than 1, and the like, and a budget of thinking."""
    return _version(model)[1] <= _LAST_TO_SAMPLE


def _version(model: str | None) -> tuple[str, tuple[int, int]]:
    """The family and the version of a model; ("", (0, 0)) for one that is not known."""
    known = _CLAUDE.match(_bare(model or ""))
    if known is None:
        return "", (0, 0)
    family, major, minor = known.groups()
    return family, (int(major), int(minor or 0))


def _bare(model: str) -> str:
    """The name without what a gateway puts before it, such as `anthropic/` or `us.anthropic.`.

    A version is written with hyphens.
    """
    name = model.rpartition("/")[2]
    return name[name.find("claude") :].replace(".", "-") if "claude" in name else name


MODELS = Models(recognises=lambda model: "claude" in model, holding=_HOLDING, bare_name=_bare)
