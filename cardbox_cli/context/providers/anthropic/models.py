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
# The first version that takes system text within the messages.
_FIRST_WITH_SYSTEM_INSIDE = (4, 8)
# The last version that wanted the user to speak first; the API's reference no longer says so.
_LAST_WITH_USER_FIRST = (4, 4)
# Names of before the family stood first in them.
_OLD = re.compile(r"claude-(?:instant|[23])(?![0-9])")

# Anthropic docs, Effort: the levels of each version, from the newest on; before the last there is none.
_ALL_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_EFFORTS: tuple[tuple[tuple[int, int], tuple[str, ...]], ...] = (
    ((4, 7), _ALL_EFFORTS),
    ((4, 6), ("low", "medium", "high", "max")),
)
_FIRST_ADAPTIVE = (4, 6)
# Anthropic docs, Models overview and each model's page: the most tokens of an answer, with beta headers.
_ANSWERS = {
    4_096: ("claude-3-haiku", "claude-3-sonnet", "claude-3-opus", "claude-2-1", "claude-2", "claude-2-0"),
    8_192: ("claude-3-5-sonnet", "claude-3-5-haiku"),
    32_000: ("claude-opus-4", "claude-opus-4-0", "claude-opus-4-1"),
    64_000: (
        "claude-sonnet-4",
        "claude-sonnet-4-0",
        "claude-sonnet-4-5",
        "claude-haiku-4-5",
        "claude-opus-4-5",
    ),
    128_000: ("claude-3-7-sonnet",),
}
# The same for models whose answers may be longer in a batch, with a beta header.
_ANSWERS_OUTSIDE_BATCHES = {
    128_000: (
        *("claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-opus-5-5"),
        *("claude-sonnet-4-6", "claude-sonnet-5", "claude-sonnet-5-5", "claude-haiku-5-5"),
        *("claude-fable-5", "claude-fable-5-1"),
    ),
}


def takes_system_inside(model: str | None) -> bool:
    """Whether a model takes system text within the messages. One that is not known does not."""
    return _version(model)[1] >= _FIRST_WITH_SYSTEM_INSIDE


def wants_user_first(model: str | None) -> bool:
    """Whether the first message must be the user's: for old models, and where none is named."""
    return model is None or is_old(model) or (0, 0) < _version(model)[1] <= _LAST_WITH_USER_FIRST


def is_old(model: str | None) -> bool:
    """Whether it is one of Claude 2 or 3."""
    return _OLD.match(_bare(model or "")) is not None


def efforts(model: str | None) -> tuple[str, ...] | None:
    """How much effort a model can be asked for, where that is known; () for one that cannot be asked."""
    family, version = _version(model)
    if is_old(model):
        return ()
    if version == (0, 0) or (family == "haiku" and version > (4, 5)):
        return None
    if (family, version) == ("opus", (4, 5)):
        return ("low", "medium", "high")
    return next((levels for first, levels in _EFFORTS if version >= first), ())


def thinks(model: str | None, *, adaptive: bool) -> bool:
    """Whether a model thinks when it is asked to, or when it thinks fit. One that is not known may."""
    if is_old(model):
        return not adaptive and "3-7" in _bare(model or "")
    version = _version(model)[1]
    return not adaptive or version == (0, 0) or version >= _FIRST_ADAPTIVE


def longest_answer(model: str | None, *, outside_batches: bool = False) -> int | None:
    """How many tokens an answer of a model may have, or one that is no batch's, where that is known."""
    name, answers = MODELS.plain_name(model or ""), _ANSWERS_OUTSIDE_BATCHES if outside_batches else _ANSWERS
    return next((tokens for tokens, names in answers.items() if name in names), None)


def takes_prefill(model: str | None) -> bool:
    """Whether a model goes on with a last message of the assistant. One that is not known may."""
    family, version = _version(model)
    return family not in _NEVER_PREFILL and version <= _LAST_TO_PREFILL


def takes_sampling(model: str | None) -> bool:
    """Whether a model takes another temperature than 1, and the like, and a budget of thinking."""
    return _version(model)[1] <= _LAST_TO_SAMPLE


def takes_either(model: str | None) -> bool:
    """Whether a model takes a temperature or a top_p, and not both."""
    family, version = _version(model)
    return (family, version) == ("opus", (4, 1)) or (4, 5) <= version <= _LAST_TO_SAMPLE


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


MODELS = Models(
    recognises=lambda model: "claude" in model,
    holding=_HOLDING,
    bare_name=_bare,
    keeps_system=takes_system_inside,
)
