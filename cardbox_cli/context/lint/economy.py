"""Rules about what a request costs: a model's limit, and what spoils a provider's prefix cache."""

import re
from collections.abc import Iterator
from itertools import takewhile

from cardbox_cli.context.composer import PER_CALL
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import texts_in, tool_name
from cardbox_cli.model.card_types import card_type
from cardbox_cli.model.cards import SYSTEM_ROLES
from cardbox_cli.model.content import ToolContent
from cardbox_cli.model.layers import CHECKPOINT

# How far an estimate of tokens may be off. Against tokenizers that are at hand it errs by less on whole
# conversations (`docs/tokens.md`); by how much against others, nobody can measure offline.
_ERROR = 0.2

_VOLATILE = {
    "a time": re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d"),
    "a UUID": re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b[0-9a-f]{32}\b", re.IGNORECASE),
    "a counter": re.compile(
        r"\b(?:request|turn|step|run|call|session|attempt|iteration)\s*(?:#|no\.|number)\s*:?\s*\d+",
        re.IGNORECASE,
    ),
}

LIMITS, CACHING = Rules(), Rules()


@LIMITS.error("over-limit", remedy="leave out what is old, or put a summary in its place")
def _too_long(subject: Subject) -> Iterator[Hit]:
    """More tokens than the model holds, even if what of them is estimated is 20 % too high."""
    limit = subject.window
    if limit is not None and _fewest_and_most(subject)[0] > limit:
        yield None, _beside_limit(subject, limit)


@LIMITS.warning("near-limit", remedy="leave out what is old, or put a summary in its place")
def _nearly_too_long(subject: Subject) -> Iterator[Hit]:
    """So many tokens that they may be more than the model holds: what of them is estimated may be 20 %
    more."""
    limit = subject.window
    if limit is None:
        return
    fewest, most = _fewest_and_most(subject)
    if fewest <= limit < most:
        yield None, _beside_limit(subject, limit)


def _fewest_and_most(subject: Subject) -> tuple[float, float]:
    account = subject.explained
    doubt = account.tokens_estimated * _ERROR
    return account.tokens - doubt, account.tokens + doubt


def _beside_limit(subject: Subject, limit: int) -> str:
    account = subject.explained
    tokens = f"{'' if account.tokens_exact else '~'}{account.tokens}"
    return f"{tokens} tokens, and {subject.request.model} holds {limit}"


@CACHING.warning("volatile-text", remedy="say it at the end, beside the query")
def _volatile_texts(subject: Subject) -> Iterator[Hit]:
    """A time, a UUID or a counter in the system text before the history: with each new one the whole
    request is read anew."""
    for message in subject.request.messages:
        if message.body.get("role") not in SYSTEM_ROLES:
            return
        entry = subject.place(message)
        card = None if entry is None else entry.slot.card
        if card is not None and card_type(card.type).names_others:
            continue
        for name, pattern in _VOLATILE.items():
            found = pattern.search(texts_in(message.body.get("content")))
            if found:
                yield entry, f"{name} ({found[0]!r}) stands in system text before the history"


@CACHING.warning("tool-order", remedy="put the tools on one card, or in the order of their names")
def _tool_order(subject: Subject) -> Iterator[Hit]:
    """Tools from several cards, not in the order of their names: another order of the cards is another
    prefix."""
    if len(subject.offered) < 2:
        return
    bringing = [
        entry for entry, card in subject.cards if isinstance(card.content, ToolContent) and card.content.tools
    ]
    names = [tool_name(tool) or "" for tool in subject.offered]
    if len(bringing) > 1 and names != sorted(names):
        yield bringing[1], f"{len(bringing)} cards bring the tools, which are not in the order of their names"


@CACHING.warning(
    "layer-before-history",
    remedy="put it beside the query: --layout cache, or `layout: cache` in the profile",
)
def _early_layers(subject: Subject) -> Iterator[Hit]:
    """A layer that changes with each query (experience, knowledge, todo) before the history."""
    messages = subject.request.messages
    early = list(takewhile(lambda message: message.layer != CHECKPOINT, messages))
    for message in early if len(early) < len(messages) else []:
        if message.layer in PER_CALL:
            yield subject.place(message), f"the layer {message.layer} stands before the history"
