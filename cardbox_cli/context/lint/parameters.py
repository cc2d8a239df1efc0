"""Rules about the parameters of a request: what they may be, and which of them refuse each other.

They look at the body as it is sent, so that what a format leaves out is no matter here.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from cardbox_cli.context.blocks import text_at, texts_in, tool_name
from cardbox_cli.context.lint.models import is_reasoning, reasons, takes_sampling
from cardbox_cli.context.lint.rule import Hit, Rule
from cardbox_cli.context.lint.subject import Subject

_LEAST_BUDGET = 1024
_HOTTEST = {"openai": 2, "anthropic": 1}
_SAMPLING = ("temperature", "top_p", "top_k")

_OPENAI = "OpenAI API reference, Create chat completion"
_ANTHROPIC = "Anthropic API reference, Create a Message"
_THINKING = "Anthropic docs, Extended thinking"


# --- both


def _temperature(subject: Subject) -> Iterator[Hit]:
    if not subject.request.config:
        return
    heat, most = _number(subject.beside.get("temperature")), _HOTTEST[subject.provider]
    if heat is not None and not 0 <= heat <= most:
        yield None, f"the temperature is {heat}, not from 0 to {most}"


def _tool_choice(subject: Subject) -> Iterator[Hit]:
    if "tool_choice" not in subject.request.config:
        return
    choice = subject.beside.get("tool_choice")
    wanted = tool_name(choice) if text_at(choice, "type") in ("function", "tool") else None
    if wanted is not None and wanted not in {tool_name(tool) for tool in subject.beside["tools"]}:
        yield None, f"tool_choice wants {wanted!r}, which is not among the request's tools"


def _number(value: Any) -> int | float | Decimal | None:
    return value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None


# --- Anthropic


def _budget_too_large(subject: Subject) -> Iterator[Hit]:
    if not subject.request.tools:
        yield from _budget_beside_limit(subject)
    budget = _budget(subject)
    if budget is not None and budget < _LEAST_BUDGET:
        yield None, f"the thinking may take {budget} tokens, not {_LEAST_BUDGET} or more"


def _budget_for_interleaved(subject: Subject) -> Iterator[Hit]:
    if subject.request.tools:
        yield from _budget_beside_limit(subject)


def _budget_beside_limit(subject: Subject) -> Iterator[Hit]:
    budget = _budget(subject)
    if budget is not None and budget >= (limit := subject.beside["max_tokens"]):
        yield None, f"the thinking may take {budget} tokens, and the whole answer {limit} (max_tokens)"


def _budget(subject: Subject) -> int | float | Decimal | None:
    thinking = subject.request.config.get("thinking")
    is_on = text_at(thinking, "type") == "enabled"
    return _number(thinking.get("budget_tokens")) if is_on and isinstance(thinking, dict) else None


def _refused_by_thinking(subject: Subject) -> Iterator[Hit]:
    mode = text_at(subject.request.config.get("thinking"), "type")
    if mode not in ("enabled", "adaptive"):
        return
    sent = subject.beside
    heat, share = _number(sent.get("temperature")), _number(sent.get("top_p"))
    if heat not in (None, 1):
        yield None, f"with thinking on, the temperature is {heat}, not 1"
    if share is not None and not 0.95 <= share <= 1:
        yield None, f"with thinking on, top_p is {share}, not from 0.95 to 1"
    if "top_k" in sent:
        yield None, "with thinking on, top_k must not be given"
    choice = text_at(sent.get("tool_choice"), "type")
    if mode == "enabled" and choice in ("any", "tool"):
        yield None, f"with thinking on, tool_choice forces a tool ({choice})"


def _removed(subject: Subject) -> Iterator[Hit]:
    if not subject.request.config or takes_sampling(subject.request.model):
        return
    model, sent = subject.request.model, subject.beside
    for name in _SAMPLING:
        if name in sent and (name == "top_k" or _number(sent[name]) != 1):
            yield None, f"{model} takes no {name}, which is {sent[name]}"
    if text_at(sent.get("thinking"), "type") == "enabled":
        yield None, f"{model} takes no thinking of type 'enabled', but of 'adaptive'"


# --- OpenAI


def _json_unsaid(subject: Subject) -> Iterator[Hit]:
    if text_at(subject.request.config.get("response_format"), "type") != "json_object":
        return
    messages = subject.request.messages
    if not any("json" in texts_in(message.body.get("content")).lower() for message in messages):
        yield None, "response_format is json_object, and no message says the word JSON"


def _refused_by_reasoning(subject: Subject) -> Iterator[Hit]:
    model = subject.request.model
    if not subject.request.config or not is_reasoning(model):
        return
    sent = subject.beside
    if sent.get("max_tokens") is not None:
        yield None, f"{model} takes no max_tokens, but max_completion_tokens"
    if not reasons(model, sent.get("reasoning_effort")):
        return
    for name in ("temperature", "top_p"):
        value = _number(sent.get(name))
        if value not in (None, 1):
            yield None, f"{model} takes no other {name} than 1 when it reasons, and it is {value}"


def _shared(source: str) -> tuple[Rule, ...]:
    return (
        Rule(
            id="temperature-out-of-range",
            severity="error",
            finds="A temperature below 0 or above what the provider takes: 2 for OpenAI, 1 for Anthropic.",
            source=f"{source}: temperature",
            remedy="set another temperature in the profile's llm_config",
            find=_temperature,
        ),
        Rule(
            id="tool-choice-unknown",
            severity="error",
            finds="A `tool_choice` that names a tool which is not among the request's tools.",
            source=f"{source}: tool_choice",
            remedy="add the tool's definition (a `sys.tools` card), or choose another",
            find=_tool_choice,
        ),
    )


OPENAI = (
    *_shared(_OPENAI),
    Rule(
        id="json-unsaid",
        severity="error",
        finds="`response_format: json_object` where no message says the word JSON.",
        source="OpenAI docs, Structured model outputs: JSON mode",
        remedy="tell the model in the system prompt to answer in JSON",
        find=_json_unsaid,
    ),
    Rule(
        id="reasoning-parameters",
        severity="error",
        finds="For a model that reasons (o1, o3, o4, GPT-5): `max_tokens`, or a `temperature` or `top_p` "
        "other than 1. From GPT-5.1 on these are found where a `reasoning_effort` is set.",
        source="OpenAI docs, Using the latest model: parameter compatibility",
        remedy="use max_completion_tokens, and leave the temperature out",
        find=_refused_by_reasoning,
    ),
)

ANTHROPIC = (
    *_shared(_ANTHROPIC),
    Rule(
        id="thinking-budget",
        severity="error",
        finds=f"A budget of thinking that is not below `max_tokens` (where there are no tools), or below "
        f"{_LEAST_BUDGET}.",
        source=f"{_THINKING}: working with thinking budgets",
        remedy="raise max_tokens in the profile's llm_config, or lower budget_tokens",
        find=_budget_too_large,
    ),
    Rule(
        id="thinking-budget-interleaved",
        severity="warning",
        finds="Beside tools, a budget of thinking that is not below `max_tokens`: refused without the beta "
        "header of interleaved thinking.",
        source=f"{_THINKING}: interleaved thinking",
        remedy="raise max_tokens in the profile's llm_config, or lower budget_tokens",
        find=_budget_for_interleaved,
    ),
    Rule(
        id="thinking-parameters",
        severity="error",
        finds="With thinking on, a `temperature` other than 1, a `top_p` below 0.95, a `top_k`, or, unless "
        "it is adaptive, a `tool_choice` that forces a tool.",
        source=f"{_THINKING}: feature compatibility",
        remedy="leave the parameter out, or turn thinking off for this request",
        find=_refused_by_thinking,
    ),
    Rule(
        id="parameter-removed",
        severity="error",
        finds="For Claude 4.7 and later: a `temperature` or `top_p` other than 1, a `top_k`, or thinking of "
        "type `enabled`.",
        source="Anthropic docs, Migration guide: Claude Opus 4.7, breaking changes",
        remedy="leave the parameter out; say how much to think by output_config.effort",
        find=_removed,
    ),
)
