"""Rules of Anthropic's Messages about parameters that thinking or newer models refuse.

They look at the body as it is sent, so that what the format leaves out is no matter here.
"""

from collections.abc import Iterator
from decimal import Decimal

from cardbox_cli.context.lint.parameters import Range, number_of, out_of_range, value_at
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.anthropic.models import takes_sampling

_LEAST_BUDGET = 1024
_LONGEST_USER = 256
_SAMPLING = ("temperature", "top_p", "top_k")
_THINKING = "Anthropic docs, Extended thinking"
_REFERENCE = "Anthropic API reference, Create a Message"

RULES = Rules()

# Anthropic API reference, Create a Message.
_RANGES = (Range("max_tokens", 0), Range("top_p", 0, 1), Range("top_k", 0))


@RULES.error("parameter-out-of-range", source=_REFERENCE, remedy="set another value")
def _ranges(subject: Subject) -> Iterator[Hit]:
    """A `max_tokens` or `top_k` below 0, a `top_p` that is not from 0 to 1, a white `stop_sequences` text, a
    `user_id` of more than 256 characters."""
    yield from out_of_range(subject, _RANGES)
    stops = subject.beside.get("stop_sequences")
    if isinstance(stops, list) and any(isinstance(stop, str) and not stop.strip() for stop in stops):
        yield None, "a text of stop_sequences is empty, or white"
    user = value_at(subject.beside, "metadata.user_id")
    if isinstance(user, str) and len(user) > _LONGEST_USER:
        yield None, f"metadata.user_id has {len(user)} characters, not up to {_LONGEST_USER}"


@RULES.error("parameter-without-other", source=_REFERENCE, remedy="add tools, or leave it out")
def _alone(subject: Subject) -> Iterator[Hit]:
    """A `tool_choice` without tools."""
    sent = subject.beside
    if sent.get("tool_choice") is not None and not (subject.tools or sent.get("mcp_servers")):
        yield None, "tool_choice is set, and there are no tools"


@RULES.error(
    "domains-exclusive",
    source="Anthropic docs, Web search tool: domain filtering",
    remedy="keep one of the lists",
)
def _domains(subject: Subject) -> Iterator[Hit]:
    """A web tool with both `allowed_domains` and `blocked_domains`."""
    for number, tool in enumerate(subject.tools):
        if isinstance(tool, dict) and tool.get("allowed_domains") and tool.get("blocked_domains"):
            yield None, f"tool {number} has allowed_domains and blocked_domains"


@RULES.error(
    "thinking-budget",
    source=f"{_THINKING}: working with thinking budgets",
    remedy="raise max_tokens in the profile's llm_config, or lower budget_tokens",
    finds=f"A budget of thinking that is not below `max_tokens` (where there are no tools), or below "
    f"{_LEAST_BUDGET}.",
)
def _budget_too_large(subject: Subject) -> Iterator[Hit]:
    if not subject.offered:
        yield from _budget_beside_limit(subject)
    budget = _budget(subject)
    if budget is not None and budget < _LEAST_BUDGET:
        yield None, f"the thinking may take {budget} tokens, not {_LEAST_BUDGET} or more"


@RULES.warning(
    "thinking-budget-interleaved",
    source=f"{_THINKING}: interleaved thinking",
    remedy="raise max_tokens in the profile's llm_config, or lower budget_tokens",
)
def _budget_for_interleaved(subject: Subject) -> Iterator[Hit]:
    """Beside tools, a budget of thinking that is not below `max_tokens`: refused without the beta header
    of interleaved thinking."""
    if subject.offered:
        yield from _budget_beside_limit(subject)


def _budget_beside_limit(subject: Subject) -> Iterator[Hit]:
    budget, limit = _budget(subject), number_of(subject.beside.get("max_tokens"))
    if budget is not None and limit is not None and budget >= limit:
        yield None, f"the thinking may take {budget} tokens, and the whole answer {limit} (max_tokens)"


def _budget(subject: Subject) -> int | float | Decimal | None:
    thinking = subject.request.config.get("thinking")
    is_on = text_at(thinking, "type") == "enabled"
    return number_of(thinking.get("budget_tokens")) if is_on and isinstance(thinking, dict) else None


@RULES.error(
    "thinking-parameters",
    source=f"{_THINKING}: feature compatibility",
    remedy="leave the parameter out, or turn thinking off for this request",
)
def _refused_by_thinking(subject: Subject) -> Iterator[Hit]:
    """With thinking on, a `temperature` other than 1, a `top_p` below 0.95, a `top_k`, or, unless it is
    adaptive, a `tool_choice` that forces a tool."""
    mode = text_at(subject.request.config.get("thinking"), "type")
    if mode not in ("enabled", "adaptive"):
        return
    sent = subject.beside
    heat, share = number_of(sent.get("temperature")), number_of(sent.get("top_p"))
    if heat not in (None, 1):
        yield None, f"with thinking on, the temperature is {heat}, not 1"
    if share is not None and not 0.95 <= share <= 1:
        yield None, f"with thinking on, top_p is {share}, not from 0.95 to 1"
    if "top_k" in sent:
        yield None, "with thinking on, top_k must not be given"
    choice = text_at(sent.get("tool_choice"), "type")
    if mode == "enabled" and choice in ("any", "tool"):
        yield None, f"with thinking on, tool_choice forces a tool ({choice})"


@RULES.error(
    "parameter-removed",
    source="Anthropic docs, Migration guide: Claude Opus 4.7, breaking changes",
    remedy="leave the parameter out; say how much to think by output_config.effort",
)
def _removed(subject: Subject) -> Iterator[Hit]:
    """For Claude 4.7 and later: a `temperature` or `top_p` other than 1, a `top_k`, or thinking of type
    `enabled`."""
    if not subject.request.config or takes_sampling(subject.request.model):
        return
    model, sent = subject.request.model, subject.beside
    for name in _SAMPLING:
        if name in sent and (name == "top_k" or number_of(sent[name]) != 1):
            yield None, f"{model} takes no {name}, which is {sent[name]}"
    if text_at(sent.get("thinking"), "type") == "enabled":
        yield None, f"{model} takes no thinking of type 'enabled', but of 'adaptive'"
