"""Rules of Anthropic's Messages about thinking, about parameters, and about what some of its models refuse.

They check the request in the form in which it is sent. Anthropic requires thinking unchanged and at its
original position. Rules about models do not apply to unknown models.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import groupby, islice
from typing import Any

import msgspec

from cardbox_cli.context.lint import request_rules as shared
from cardbox_cli.context.lint.rule import Hit, Rules, Subject
from cardbox_cli.context.messages import Message, runs
from cardbox_cli.context.parts import kind, list_at, text_at
from cardbox_cli.context.request import RequestEntry
from cardbox_cli.model.card_types import REASONING
from cardbox_cli.providers.anthropic.blocks import (
    content_of,
    conversation,
    ensure_blocks,
    is_of_server,
    make_ids_unique,
    results_first,
)

# The types of thinking blocks.
THINKING_BLOCKS = ("thinking", "redacted_thinking")
_MIN_BUDGET = 1024
_MAX_USER = 256
_SAMPLING = ("temperature", "top_p", "top_k")
_EXTENDED = "Anthropic docs, Extended thinking"
_REFERENCE = "Anthropic API reference, Create a Message"

THINKING = Rules(f"{_EXTENDED}: preserving thinking blocks")
PARAMETERS = Rules()
MODELS = Rules("Anthropic docs, Models overview")


class MergedMessage(msgspec.Struct, frozen=True):
    """A sent message: its role, its blocks with the messages that they come from, and the blocks' types."""

    role: str
    blocks: list[tuple[Any, Message]]
    kinds: list[str]


class SentMessages:
    """The messages as they are sent. `subject.view(SentMessages)` makes them once for all rules."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        others = conversation(subject.request.messages, subject.facts)
        self._messages, self.renamed = make_ids_unique(list(others))

    @property
    def merged(self) -> Iterator[MergedMessage]:
        return map(_merged, runs(self._messages))

    def find(self, index: int) -> MergedMessage | None:
        """Return the message at `index`, which may be negative, or None if there is no such message."""
        if index >= 0:
            run = next(islice(runs(self._messages), index, None), None)
        else:
            run = next(islice(runs(reversed(self._messages)), -index - 1, None), [])[::-1]
        return _merged(run) if run else None

    @property
    def prefill(self) -> MergedMessage | None:
        """The last message if it is the assistant's and has blocks, or None."""
        last = self.find(-1)
        return last if last is not None and last.role == "assistant" and last.blocks else None

    def place_in(self, message: MergedMessage, index: int) -> RequestEntry | None:
        """Return the entry of the card from which a block of a message comes."""
        return self._subject.place(message.blocks[index][1]) if message.blocks else None

    @cached_property
    def blocks(self) -> dict[str, list[tuple[Any, Message]]]:
        """The content blocks by type, with their messages. Content that is a string has no blocks."""
        kinds: dict[str, list[tuple[Any, Message]]] = {}
        for message in self._messages:
            for block in list_at(message.body, "content"):
                kinds.setdefault(kind(block), []).append((block, message))
        return kinds


def _merged(run: Sequence[Message]) -> MergedMessage:
    role = run[0].body["role"]
    blocks = [(block, message) for message in run for block in ensure_blocks(message.body["content"])]
    if role == "user" and len(blocks) > 1:
        blocks.sort(key=lambda pair: results_first(pair[0]))
    return MergedMessage(role, blocks, [kind(block) for block, _ in blocks])


def is_thinking_on(subject: Subject) -> bool:
    """Return whether the request enables thinking. Adaptive thinking does not count as enabled."""
    return _mode(subject) == "enabled"


def _mode(subject: Subject) -> str | None:
    return text_at(subject.request.config.get("thinking"), "type")


@THINKING.warning("thinking-unsigned", logged="error")
def _unsigned(subject: Subject) -> Iterator[Hit]:
    """Thinking without a signature, which is left out."""
    for entry, card in subject.cards_by_type(REASONING):
        for block in ensure_blocks(content_of(card, subject.provider)):
            if kind(block) == "thinking" and not block.get("signature"):
                yield entry, "the thinking has no signature, and is left out"


@THINKING.error("thinking-modified", remedy="put the original card back, or leave the thinking out")
def _modified(subject: Subject) -> Iterator[Hit]:
    """Thinking that its signature was not made for: edited, or two thoughts with one signature."""
    signed: dict[str, str] = {}
    thoughts = (
        (entry, card, block)
        for entry, card, message in (subject.history.messages if REASONING in subject.types else ())
        for block in (ensure_blocks(message.body["content"]) if card.type == REASONING else ())
    )
    for entry, card, block in thoughts:
        if kind(block) == "thinking":
            signature, thought = str(block.get("signature")), str(block.get("thinking"))
            if "edited_from" in card.metadata or signed.setdefault(signature, thought) != thought:
                yield entry, "the thinking is not what its signature was made for"


def _late(subject: Subject) -> Iterator[Hit]:
    if _mode(subject) == "adaptive":
        return  # adaptive thinking may also follow other blocks
    sent = subject.view(SentMessages)
    for message in sent.merged:
        if message.role != "assistant" or not message.kinds or message.kinds[0] in THINKING_BLOCKS:
            continue
        first = next((index for index, name in enumerate(message.kinds) if name in THINKING_BLOCKS), None)
        if first is not None and not any(map(is_of_server, message.kinds[:first])):
            before = message.kinds[0] or "strange"
            yield sent.place_in(message, first), f"thinking follows a {before} block"


def _torn(subject: Subject) -> Iterator[Hit]:
    """Yield thinking that is separated from its message by another one, and comes after it."""
    ended: set[str | None] = {None}
    for group, run in groupby(subject.history.messages, key=lambda each: each[2].group):
        for entry, card, _ in run:
            if group in ended and group is not None and card.type == REASONING:
                yield entry, "another message separates the thinking from its message"
        ended.add(group)


@THINKING.error(
    "thinking-out-of-order", remedy="put the cards of the message next to each other again, thinking first"
)
def _out_of_order(subject: Subject) -> Iterator[Hit]:
    """Thinking that does not begin its message, unless it is adaptive or follows a server's tool; thinking
    that another message separates from its own."""
    if not any(name in subject.view(SentMessages).blocks for name in THINKING_BLOCKS):
        return
    yield from _late(subject)
    yield from _torn(subject)


@THINKING.error("thinking-last", remedy="leave the thinking out, or add what followed it")
def _thinking_last(subject: Subject) -> Iterator[Hit]:
    """A last message of the assistant that ends in thinking."""
    sent = subject.view(SentMessages)
    last = sent.prefill
    if last is not None and kind(last.blocks[-1][0]) in THINKING_BLOCKS:
        yield sent.place_in(last, -1), "the last message ends in thinking"


@THINKING.error(
    "thinking-missing", remedy="put the thinking of that message back, or turn thinking off for this request"
)
def _thinking_missing(subject: Subject) -> Iterator[Hit]:
    """Tool results for a message that does not begin with thinking, while thinking is on."""
    sent = subject.view(SentMessages)
    called, answered = sent.find(-2), sent.find(-1)
    if not is_thinking_on(subject) or called is None or answered is None:
        return
    is_open = any(kind(block) == "tool_result" for block, _ in answered.blocks)
    if called.role == "assistant" and is_open and kind(called.blocks[0][0]) not in THINKING_BLOCKS:
        yield sent.place_in(called, 0), "the message that called the tools does not begin with thinking"


_RANGES = (shared.Range("max_tokens", 0), shared.Range("top_p", 0, 1), shared.Range("top_k", 0))


@PARAMETERS.error("parameter-out-of-range", source=_REFERENCE, remedy="set another value")
def _ranges(subject: Subject) -> Iterator[Hit]:
    """A `max_tokens` or `top_k` below 0, a `top_p` that is not from 0 to 1, a blank text in `stop_sequences`,
    a `user_id` of more than 256 characters."""
    yield from shared.out_of_range(subject.body_without_messages, _RANGES)
    stops = subject.body_without_messages.get("stop_sequences")
    if isinstance(stops, list) and any(isinstance(stop, str) and not stop.strip() for stop in stops):
        yield None, "a string in stop_sequences is empty or blank"
    user = shared.value_at(subject.body_without_messages, "metadata.user_id")
    if isinstance(user, str) and len(user) > _MAX_USER:
        yield None, f"metadata.user_id has {len(user)} characters, not up to {_MAX_USER}"


@PARAMETERS.error("parameter-without-other", source=_REFERENCE, remedy="add tools, or leave it out")
def _alone(subject: Subject) -> Iterator[Hit]:
    """A `tool_choice` without tools."""
    sent = subject.body_without_messages
    if sent.get("tool_choice") is not None and not (subject.tools or sent.get("mcp_servers")):
        yield None, "tool_choice is set, but the request has no tools"


@PARAMETERS.error(
    "domains-exclusive",
    source="Anthropic docs, Web search tool: domain filtering",
    remedy="keep one of the lists",
)
def _domains(subject: Subject) -> Iterator[Hit]:
    """A web tool with both `allowed_domains` and `blocked_domains`."""
    for number, tool in enumerate(subject.tools):
        if isinstance(tool, dict) and tool.get("allowed_domains") and tool.get("blocked_domains"):
            yield None, f"tool {number} has allowed_domains and blocked_domains"


@PARAMETERS.error(
    "thinking-budget",
    source=f"{_EXTENDED}: working with thinking budgets",
    remedy="raise max_tokens in the profile's llm_config, or lower budget_tokens",
    finds=f"A budget of thinking that is not below `max_tokens` (where there are no tools), or below "
    f"{_MIN_BUDGET}.",
)
def _budget_too_large(subject: Subject) -> Iterator[Hit]:
    if not subject.offered:
        yield from _budget_beside_limit(subject)
    budget = _budget(subject)
    if budget is not None and budget < _MIN_BUDGET:
        yield None, f"the thinking may take {budget} tokens, not {_MIN_BUDGET} or more"


@PARAMETERS.warning(
    "thinking-budget-interleaved",
    source=f"{_EXTENDED}: interleaved thinking",
    remedy="raise max_tokens in the profile's llm_config, or lower budget_tokens",
)
def _budget_for_interleaved(subject: Subject) -> Iterator[Hit]:
    """A budget of thinking that is not below `max_tokens`, next to tools: refused without the beta header of
    interleaved thinking."""
    if subject.offered:
        yield from _budget_beside_limit(subject)


def _budget_beside_limit(subject: Subject) -> Iterator[Hit]:
    budget, limit = _budget(subject), shared.number_of(subject.body_without_messages.get("max_tokens"))
    if budget is not None and limit is not None and budget >= limit:
        yield None, f"the thinking may take {budget} tokens, and the whole answer {limit} (max_tokens)"


def _budget(subject: Subject) -> int | float | Decimal | None:
    thinking = subject.request.config.get("thinking")
    is_on = text_at(thinking, "type") == "enabled"
    return shared.number_of(thinking.get("budget_tokens")) if is_on and isinstance(thinking, dict) else None


@PARAMETERS.error(
    "thinking-parameters",
    source=f"{_EXTENDED}: feature compatibility",
    remedy="leave the parameter out, or turn thinking off for this request",
)
def _refused_by_thinking(subject: Subject) -> Iterator[Hit]:
    """A `temperature` other than 1, a `top_p` below 0.95 or a `top_k` while thinking is on; a `tool_choice`
    that forces a tool, unless thinking is adaptive."""
    mode = _mode(subject)
    if mode not in ("enabled", "adaptive"):
        return
    sent = subject.body_without_messages
    heat, share = shared.number_of(sent.get("temperature")), shared.number_of(sent.get("top_p"))
    if heat not in (None, 1):
        yield None, f"with thinking on, the temperature is {heat}, not 1"
    if share is not None and not 0.95 <= share <= 1:
        yield None, f"with thinking on, top_p is {share}, not from 0.95 to 1"
    if "top_k" in sent:
        yield None, "with thinking on, top_k must not be given"
    choice = text_at(sent.get("tool_choice"), "type")
    if mode == "enabled" and choice in ("any", "tool"):
        yield None, f"with thinking on, tool_choice forces a tool ({choice})"


@PARAMETERS.error(
    "parameter-removed",
    source="Anthropic docs, Migration guide: Claude Opus 4.7, breaking changes",
    remedy="omit the parameter; set the amount of thinking with output_config.effort",
)
def _removed(subject: Subject) -> Iterator[Hit]:
    """A `temperature` or `top_p` other than 1, a `top_k`, thinking of type `enabled`, for Claude 4.7 or
    later."""
    if not subject.request.config or subject.facts.sampling is not False:
        return
    model, sent = subject.request.model, subject.body_without_messages
    for name in _SAMPLING:
        if name in sent and (name == "top_k" or shared.number_of(sent[name]) != 1):
            yield None, f"{model} does not accept {name}, which is {sent[name]}"
    if text_at(sent.get("thinking"), "type") == "enabled":
        yield None, f"{model} accepts thinking of type 'adaptive', not 'enabled'"


@MODELS.error(
    "role-refused",
    source="Anthropic docs, Mid-conversation system messages",
    remedy="say it in `system`, or choose Claude Opus 4.8 or later",
)
def _roles(subject: Subject) -> Iterator[Hit]:
    """A logged message of the role `system` for a model before Claude Opus 4.8. Rendering moves it up."""
    if subject.logged is None or subject.request.model is None or subject.facts.system_in_history:
        return
    for entry, message in subject.logged.messages:
        if text_at(message, "role") == "system":
            yield entry, f"{subject.request.model} does not accept a system message among the other messages"


@MODELS.error(
    "parameter-refused",
    source="Anthropic docs, Effort; Adaptive thinking",
    remedy="leave the parameter out, or choose another model",
)
def _refused_by_model(subject: Subject) -> Iterator[Hit]:
    """An `effort` or a `thinking` that the model does not take, or not of this level or type."""
    sent = subject.body_without_messages
    yield from shared.refused_effort(subject, shared.value_at(sent, "output_config.effort"))
    mode, known = shared.value_at(sent, "thinking.type"), subject.facts.thinking
    if known is None or mode not in ("enabled", "adaptive"):
        return
    # For models that support only adaptive thinking, the rule `parameter-removed` reports type `enabled`.
    if not known or (mode == "adaptive" and mode not in known):
        yield None, f"{subject.request.model} does not support thinking of type {mode!r}"


@MODELS.error("answer-too-long", remedy="lower max_tokens")
def _too_long(subject: Subject) -> Iterator[Hit]:
    """A `max_tokens` above what the model's answers may have."""
    return shared.too_long_answer(subject, ["max_tokens"], subject.facts.max_output)


@MODELS.warning("answer-for-batches", remedy="lower max_tokens, unless it is for a batch")
def _batch_only_max_tokens(subject: Subject) -> Iterator[Hit]:
    """A `max_tokens` above the model's limit outside of batches, where a beta header allows more."""
    return shared.too_long_answer(subject, ["max_tokens"], subject.facts.max_output_outside_batches)


@MODELS.error(
    "parameters-exclusive",
    source="what the API answers: `temperature` and `top_p` cannot both be specified for this model",
    remedy="leave one of them out",
)
def _temperature_and_top_p(subject: Subject) -> Iterator[Hit]:
    """A `temperature` together with a `top_p`, for Claude Opus 4.1 and the models of 4.5 and 4.6."""
    sent = subject.body_without_messages
    both = sent.get("temperature") is not None and sent.get("top_p") is not None
    if both and subject.facts.temperature_and_top_p is False:
        yield None, f"{subject.request.model} accepts a temperature or a top_p, but both are set"
