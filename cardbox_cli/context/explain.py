"""Explaining a request: for each message where it comes from and what it costs; and what was left out."""

from typing import Any

import msgspec

from cardbox_cli.context.request import Omitted, Request
from cardbox_cli.model import exact_json
from cardbox_cli.model.tokens import estimate_tokens


class MessageLine(msgspec.Struct, frozen=True, kw_only=True):
    """One message's account. `characters` counts its content and tool calls; `tokens` is an estimate."""

    layer: str
    role: str
    card_id: str | None
    rule: str | None
    characters: int
    tokens: int
    preview: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a request. All token counts are estimates."""

    messages: list[MessageLine]
    left_out: list[Omitted]
    tokens: int


def explain(request: Request) -> Explanation:
    """The account of every message of `request`, in order, and of every card that made none."""
    lines = []
    for message in request.messages:
        said = spoken(message.body)
        place = request.places.get(message.card_id or "")
        lines.append(
            MessageLine(
                layer=message.layer,
                role=str(message.body.get("role")),
                card_id=message.card_id,
                rule=None if place is None else place.rule,
                characters=len(said),
                tokens=estimate_tokens(said),
                preview=said,
            )
        )
    tools = estimate_tokens(exact_json.encode(request.tools).decode()) if request.tools else 0
    return Explanation(
        messages=lines, left_out=request.left_out, tokens=sum(line.tokens for line in lines) + tools
    )


def spoken(body: dict[str, Any]) -> str:
    """What a message says: its text, or else its parts as JSON, and its tool calls."""
    content = body.get("content")
    text = content if isinstance(content, str) else "" if content is None else _json(content)
    calls = "".join(_json(body[key]) for key in ("tool_calls", "function_call") if body.get(key))
    return text + calls


def _json(value: Any) -> str:
    return exact_json.encode(value).decode()
