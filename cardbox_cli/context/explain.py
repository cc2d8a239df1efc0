"""Explaining a request: for each message where it comes from and what it costs; and what was left out.

Texts are counted by the model's tokenizer if it is at hand. What a plain message costs beside its text OpenAI
documents for some models. How others wrap theirs, and how tool calls, results, parts and definitions are
spelled to any model, nobody documents: that is an estimate, whatever counts it.
"""

import re
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.context.request import Omitted, Request
from cardbox_cli.model import exact_json
from cardbox_cli.model.tokens import Tokenizer, bare_name, tokenizer_for

# OpenAI Cookbook, How to count tokens with tiktoken: what is counted for a message, for its name if it has
# one, and for the beginning of the reply; and the models that this is said of.
_PER_MESSAGE, _PER_NAME, _REPLY = 3, 1, 3
_DOCUMENTED = re.compile(r"gpt-(3\.5|35|4o?)([-@:].*)?")
_PLAIN_ROLES = ("system", "user", "assistant")
_PLAIN_KEYS = frozenset({"role", "content", "name"})


class MessageLine(msgspec.Struct, frozen=True, kw_only=True):
    """One message's account. `characters` counts its content and tool calls, `tokens` all that it costs."""

    layer: str
    role: str
    card_id: str | None
    rule: str | None
    characters: int
    tokens: int
    tokens_exact: bool
    preview: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a request. `tokens` counts its tools too; `tokens_estimated` of them are an estimate."""

    messages: list[MessageLine]
    left_out: list[Omitted]
    tokens: int
    tokens_exact: bool
    tokens_estimated: int
    tokenizer: str


def explain(request: Request) -> Explanation:
    """The account of every message of `request`, in order, and of every card that made none."""
    tokenizer = tokenizer_for(request.model)
    documented = tokenizer.exact and _DOCUMENTED.fullmatch(bare_name(request.model)) is not None
    tools = tokenizer.count(_json(request.tools)) if request.tools else 0
    reply = _REPLY if request.messages else 0
    tokens, estimated = tools + reply, tools if documented else tools + reply
    lines = []
    for message in request.messages:
        cost = _cost(message.body, tokenizer, documented=documented)
        tokens += cost.tokens
        estimated += cost.estimated
        place = request.places.get(message.card_id or "")
        lines.append(
            MessageLine(
                layer=message.layer,
                role=str(message.body.get("role")),
                card_id=message.card_id,
                rule=None if place is None else place.rule,
                characters=len(cost.said),
                tokens=cost.tokens,
                tokens_exact=not cost.estimated,
                preview=cost.said,
            )
        )
    return Explanation(
        messages=lines,
        left_out=request.left_out,
        tokens=tokens,
        tokens_exact=not estimated,
        tokens_estimated=estimated,
        tokenizer=tokenizer.name,
    )


class _Cost(NamedTuple):
    """What a message says, and its tokens; how many of them are an estimate."""

    said: str
    tokens: int
    estimated: int


def _cost(body: dict[str, Any], tokenizer: Tokenizer, *, documented: bool) -> _Cost:
    role, name, content = (body.get(key) for key in ("role", "name", "content"))
    text = content if isinstance(content, str) else ""
    others = [content if content != text else None, body.get("tool_calls"), body.get("function_call")]
    rest = "".join(_json(value) for value in others if value)
    named = _PER_NAME + tokenizer.count(name) if isinstance(name, str) else 0
    of_text = tokenizer.count(text)
    tokens = _PER_MESSAGE + tokenizer.count(str(role)) + named + of_text + tokenizer.count(rest)
    if not tokenizer.exact or role not in _PLAIN_ROLES:
        estimated = tokens
    elif documented and not rest and body.keys() <= _PLAIN_KEYS:
        estimated = 0
    else:
        estimated = tokens - of_text
    return _Cost(text + rest, tokens, estimated)


def _json(value: Any) -> str:
    return exact_json.encode(value).decode()
