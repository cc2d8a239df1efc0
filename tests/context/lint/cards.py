"""Cards by a few words, and what the lint says of them."""

from collections.abc import Sequence
from typing import Any

from cardbox_cli.context.lint.rule import LintFinding, lint
from cardbox_cli.context.request import ComposeOptions, RequestEntry, request_of
from cardbox_cli.model.boxes import CardState, Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import Content, JsonContent, TextContent, ToolContent
from cardbox_cli.providers.registry import provider_for, provider_named
from tests.context.test_request import card

TEXT = "Let me look."


def call(call_id: Any = "c", name: str = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text: str = "hi", **attributes: Any) -> Card:
    return card("task.instruction", TextContent(text), "user", **attributes)


def thought(*calls: dict[str, Any], text: str = "", **attributes: Any) -> Card:
    return card("agent.thought", TextContent(text), "assistant", tool_calls=list(calls) or None, **attributes)


def result(call_id: str | None = "c", text: str = "ok", **attributes: Any) -> Card:
    return card("tool.result", TextContent(text), "tool", tool_call_id=call_id, **attributes)


def system(text: str, card_type: str = "sys.rendered_prompt", **attributes: Any) -> Card:
    return card(card_type, TextContent(text), "system", **attributes)


def profile(prompt: str = "Be kind.", **config: Any) -> Card:
    data: Content = JsonContent({"name": "x", "system_prompt": prompt, "llm_config": config})
    return card("sys.profile", data, "system")


def tools(*names: str) -> Card:
    definitions = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]
    return card("sys.tools", ToolContent(definitions), "system")


def message(source: dict[str, Any], card_type: str, role: str, **attributes: Any) -> Card:
    """A card that keeps an original OpenAI message."""
    return card(card_type, TextContent(""), role, metadata={"source_message": source}, **attributes)


def blocks(*content: Any, card_type: str = "agent.aside", role: str = "assistant", **metadata: Any) -> Card:
    """A card that keeps original Anthropic blocks."""
    kept = {"source_format": "anthropic", "source_blocks": list(content), **metadata}
    return card(card_type, TextContent("x"), role, metadata=kept)


def kept_answer(block: dict[str, Any]) -> Card:
    """A result that keeps its Anthropic block."""
    kept = {"source_format": "anthropic", "source_blocks": [block]}
    return card("tool.result", TextContent("x"), "tool", tool_call_id=block["tool_use_id"], metadata=kept)


def thinking(text: str = "hm", signature: str | None = "c2ln", **metadata: Any) -> Card:
    signed = {"signature": signature} if signature is not None else {}
    return card("agent.reasoning", TextContent(text), "assistant", metadata={**signed, **metadata})


def places(*cards: Card | RequestEntry, state: CardState = "present") -> list[RequestEntry]:
    """The cards in a box `b`, under ids of their own, `k0`, `k1`, …; entries stay as they are but for that."""
    entries = []
    for position, each in enumerate(cards):
        given = each.slot.card if isinstance(each, RequestEntry) else each
        assert given is not None
        own = card(
            card_type=given.type,
            content=given.content,
            role=given.role,
            card_id=f"k{position}",
            tool_calls=given.tool_calls,
            tool_call_id=given.tool_call_id,
            metadata=given.metadata,
        )
        if isinstance(each, RequestEntry):
            slot = Slot(
                position, own.card_id, own if each.slot.state != "dangling" else None, each.slot.state
            )
            entries.append(RequestEntry(slot=slot, box_id=each.box_id, rule=each.rule))
        else:
            entries.append(RequestEntry(slot=Slot(position, own.card_id, own, state), box_id="b"))
    return entries


def placed(
    each: Card, *, state: CardState = "present", box_id: str = "b", rule: str | None = None
) -> RequestEntry:
    """A card with a fate, a box or a rule of its own."""
    return RequestEntry(slot=Slot(0, each.card_id, each, state), box_id=box_id, rule=rule)


def found(provider: str, *cards: Card | RequestEntry, model: str | None = None) -> list[LintFinding]:
    return check(places(*cards), provider, model=model)


def check(
    entries: Sequence[RequestEntry], provider: str | None = None, *, model: str | None = None
) -> list[LintFinding]:
    """What the rules of a provider, or of the model's, find in the request that places make."""
    checked = provider_named(provider or provider_for(entries, model))
    return lint(entries, request_of(entries, ComposeOptions(model=model), encode=checked.encode), checked)
