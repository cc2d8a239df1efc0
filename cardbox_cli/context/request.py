"""From the cards of boxes to one LLM request: system prompt, tools, layers and history.

Pure. Sorts every card into the part of the request that it belongs to, and keeps account of those that
belong to none. Which order the parts take is the composer's, how a provider spells them `formats/`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.composer import CHECKPOINT, compose
from cardbox_cli.context.messages import Message, Silence, message_body
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.content import JsonContent, ToolContent

Spell = Callable[[Card], dict[str, Any] | Silence]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A place of a box as rendering takes it in: its slot, its box, and the rule that brought it if known.

    `box_id` is empty where the box does not exist (yet).
    """

    slot: Slot
    box_id: str
    rule: str | None = None


class Omitted(msgspec.Struct, frozen=True, kw_only=True):
    """A card that is no message, and why."""

    card_id: str
    box_id: str
    position: int
    reason: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One LLM request before a provider's body is made of it: its messages are spelled, no more.

    `tools` are as they are stored, `config` is the profile's llm_config; `rules` has the recipe rule of each
    card that is known.
    """

    messages: list[Message]
    tools: list[dict[str, Any]]
    model: str | None
    config: dict[str, Any]
    left_out: list[Omitted]
    rules: dict[str, str]


def request_of(entries: Sequence[Entry], *, model: str | None = None, spell: Spell = message_body) -> Request:
    """The request that the cards of boxes make, in their order; a card counts once, at its first place.

    `model` overrides the profile's, `spell` says what a card is in the dialect of a format.
    """
    kept, left_out = _readable(entries)
    profile = profile_of(card for _, card in kept)
    tools = [tool for _, card in kept if isinstance(card.content, ToolContent) for tool in card.content.tools]
    history: list[Message] = []
    for entry, card in kept:
        body = spell(card)
        if isinstance(body, Silence):
            left_out.append(_left_out(entry, body.reason))
        else:
            history.append(
                Message(layer=CHECKPOINT, body=body, card_id=card.card_id, group=sources.group(card))
            )
    messages = compose(
        system_prompt=_system_prompt(profile),
        checkpoint_messages=history,
        contexts=_contexts([card for _, card in kept]),
        query=None,
    )
    config = profile.get("llm_config")
    config = config if isinstance(config, dict) else {}
    return Request(
        messages=messages,
        tools=tools,
        model=model or _text(config.get("model")),
        config=config,
        left_out=left_out,
        rules={entry.slot.card_id: entry.rule for entry, _ in kept if entry.rule is not None},
    )


def _readable(entries: Sequence[Entry]) -> tuple[list[tuple[Entry, Card]], list[Omitted]]:
    kept: list[tuple[Entry, Card]] = []
    left_out: list[Omitted] = []
    seen: set[str] = set()
    for entry in entries:
        slot = entry.slot
        if slot.card is None or slot.fate != "present":
            left_out.append(_left_out(entry, f"{slot.fate} card"))
        elif slot.card_id in seen:
            left_out.append(_left_out(entry, "stands at an earlier place already"))
        else:
            seen.add(slot.card_id)
            kept.append((entry, slot.card))
    return kept, left_out


def _left_out(entry: Entry, reason: str) -> Omitted:
    return Omitted(
        card_id=entry.slot.card_id, box_id=entry.box_id, position=entry.slot.position, reason=reason
    )


def profile_of(cards: Iterable[Card]) -> dict[str, Any]:
    """The first profile among these cards; {} where there is none."""
    for card in cards:
        if card.type == "sys.profile" and isinstance(card.content, JsonContent):
            return card.content.data if isinstance(card.content.data, dict) else {}
    return {}


def _system_prompt(profile: dict[str, Any]) -> str | None:
    return _text(profile.get("system_prompt")) or _text(profile.get("system_prompt_template"))


def _contexts(cards: Sequence[Card]) -> dict[str, str]:
    summaries = [card_text(card.content) for card in cards if card.type == "context.compression"]
    return {"compression__context": "\n\n".join(summaries)}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
